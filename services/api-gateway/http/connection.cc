#include "services/api-gateway/http/connection.h"

#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/strings/string_view.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/http/headers.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/request_span.h"

namespace lathe::gateway {
namespace {

namespace beast = boost::beast;
using ErrorCodeHolder = boost::system::error_code;

constexpr size_t kHeadReadBytes = 4 << 10;
// Step in which a body grows. Its size follows the bytes received, because Content-Length may be
// false.
constexpr size_t kBodyStepBytes = 1 << 20;
// Spare capacity after a body. simdjson reads a little beyond the end, and copies a text that has
// no room there.
constexpr size_t kBodyPaddingBytes = 64;
constexpr char kOneYear[] = "max-age=31536000";
constexpr absl::Duration kLingerTimeout = absl::Seconds(5);
// Timeout of the TLS shutdown. A client that does not answer loses no data.
constexpr absl::Duration kShutdownTimeout = absl::Seconds(1);

absl::Status HeadTooLarge(const HttpLimits& limits) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "request headers exceed the limit of %d bytes", limits.max_head_bytes)),
                    "headers_too_large");
}

// Returns true for malformed HTTP, and false if the connection ended or timed out.
bool IsParseError(const ErrorCodeHolder& error) {
  static const auto& category = make_error_code(beast::http::error::bad_chunk).category();
  return error && error.category() == category && error != beast::http::error::partial_message &&
         error != beast::http::error::end_of_stream;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, asio::ssl::context* tls,
                       ConnectionSlots::Slot slot, ConnectionContext& context)
    : context_(context),
      slot_(std::move(slot)),
      stream_(std::move(socket), tls),
      buffer_(kReadBufferBytes),
      client_(stream_.socket(), stream_.is_tls()) {}

asio::awaitable<void> Connection::Run() {
  const auto self = shared_from_this();
  ErrorCodeHolder ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  peer_ = stream_.socket().remote_endpoint(ignored).address();
  stream_.SetTimeout(context_.limits.head_timeout);
  const ErrorCodeHolder error = co_await stream_.Handshake();
  if (!error) {
    co_await ServeAll();
    stream_.SetTimeout(kShutdownTimeout);
    co_await stream_.ShutdownSend();
  }
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.Close();
}

asio::awaitable<void> Connection::ServeAll() {
  bool is_open = true;
  while (is_open && !context_.is_draining) is_open = co_await ServeOne();
}

void Connection::Drain(bool now) {
  asio::dispatch(stream_.get_executor(), [self = shared_from_this(), now] {
    if (self->is_idle_ || now) self->stream_.Close();
  });
}

asio::awaitable<bool> Connection::ServeOne() {
  parser_.emplace();
  request_ = Request();
  route_ = nullptr;
  key_state_ = KeyState::kNone;
  refusal_ = absl::OkStatus();
  is_body_read_ = false;
  can_skip_body_ = false;
  is_idle_ = true;
  Outcome outcome = co_await ReadHead();
  if (outcome == Outcome::kRequest) outcome = co_await ReadBody();
  if (outcome == Outcome::kClosed) co_return false;
  if (outcome == Outcome::kRefused) co_return co_await Refuse(refusal_);
  const bool keep_alive = parser_->keep_alive();
  parser_.reset();
  stream_.NoTimeout();
  request_.client = &client_;
  FailPoint("gateway.request.read");
  absl::StatusOr<Response> response = co_await Handle();
  client_.Stop();
  FreeBody();
  Response answer = response.ok() ? *std::move(response) : ErrorResponse(response.status());
  co_return co_await Write(std::move(answer), keep_alive && !context_.is_leaving);
}

asio::awaitable<absl::StatusOr<Response>> Connection::Handle() {
  request_.pool = &context_.pool;
  auto handling = route_->handler(request_);
  if (request_.body.size() < kLargeBodyBytes || route_->stays_on_connection) {
    co_return co_await std::move(handling);
  }
  co_return co_await context_.pool.Run(std::move(handling));
}

asio::awaitable<Connection::Outcome> Connection::ReadHead() {
  // A connection that has sent nothing yet may not idle: a client sends right after it connects.
  const bool may_idle = has_served_ && buffer_.size() == 0;
  has_served_ = true;
  stream_.SetTimeout(may_idle ? context_.limits.idle_timeout : context_.limits.head_timeout);
  std::optional<size_t> head_bytes;
  while (true) {
    const auto data = buffer_.cdata();
    const std::string_view bytes(static_cast<const char*>(data.data()), data.size());
    head_bytes = FindHead(bytes);
    if (head_bytes || static_cast<int64_t>(bytes.size()) > context_.limits.max_head_bytes) break;
    const bool was_empty = bytes.empty();
    ErrorCodeHolder error;
    const size_t num_read = co_await stream_.async_read_some(
        buffer_.prepare(kHeadReadBytes), asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return Outcome::kClosed;
    buffer_.commit(num_read);
    is_idle_ = false;
    if (was_empty) stream_.SetTimeout(context_.limits.head_timeout);
  }
  is_idle_ = false;
  began_at_ = std::chrono::steady_clock::now();
  if (!head_bytes || static_cast<int64_t>(*head_bytes) > context_.limits.max_head_bytes) {
    refusal_ = HeadTooLarge(context_.limits);
    co_return Outcome::kRefused;
  }
  const std::string_view head(static_cast<const char*>(buffer_.cdata().data()), *head_bytes);
  refusal_ = ParseHead(head, context_.limits, *parser_);
  if (!refusal_.ok()) co_return Outcome::kRefused;
  can_skip_body_ = true;
  absl::StatusOr<RequestHead> parsed = ReadRequestHead(*parser_);
  buffer_.consume(*head_bytes);
  if (!parsed.ok()) {
    refusal_ = parsed.status();
    co_return Outcome::kRefused;
  }
  request_ = std::move(parsed->request);
  request_.is_tls = stream_.is_tls();
  context_.proxies.Apply(peer_, request_);
  refusal_ = context_.hosts.Check(request_);
  if (refusal_.ok()) refusal_ = CheckOrigin(request_);
  if (!refusal_.ok()) co_return Outcome::kRefused;
  refusal_ = co_await FindRoute(std::move(parsed->segments));
  co_return refusal_.ok() ? Outcome::kRequest : Outcome::kRefused;
}

asio::awaitable<absl::Status> Connection::FindRoute(std::vector<std::string> segments) {
  absl::StatusOr<Router::Match> match =
      context_.router.Find(request_.method, request_.path, segments);
  if (!match.ok()) co_return match.status();
  route_ = match->route;
  request_.path_parameters = std::move(match->path_parameters);
  stream_.NoTimeout();
  const absl::StatusOr<KeyState> state = co_await context_.hooks.authorize(*route_, request_);
  if (!state.ok()) co_return state.status();
  key_state_ = *state;
  BeginSpan(context_.hooks.tracer, *route_, key_state_, request_);
  co_return absl::OkStatus();
}

absl::Status Connection::CheckBodyHead() {
  limits_ = LimitsOf(*route_, context_.limits, key_state_);
  absl::Status status = CheckDeclaredBody(*parser_, *route_, limits_);
  if (!status.ok() || !route_->takes_body()) return status;
  request_.memory = ByteBudget::Share(context_.budget, request_.api_key);
  const auto content_length = static_cast<int64_t>(parser_->content_length().value_or(0));
  return request_.memory.CheckRoom(content_length * kBodyCopies);
}

asio::awaitable<Connection::Outcome> Connection::ReadBody() {
  refusal_ = CheckBodyHead();
  if (!refusal_.ok()) co_return Outcome::kRefused;
  is_body_read_ = !route_->takes_body();
  if (is_body_read_) co_return Outcome::kRequest;
  const auto content_length = parser_->content_length();
  const bool is_expected = co_await AnswerExpectation();
  if (!is_expected) co_return Outcome::kClosed;
  if (content_length) {
    is_body_read_ = co_await ReadSizedBody(static_cast<size_t>(*content_length));
  } else {
    is_body_read_ = co_await ReadBodyBytes(limits_.sent_bytes, /*is_kept=*/true);
    request_.body = std::move(parser_->get().body());
  }
  if (!is_body_read_) {
    can_skip_body_ = false;
    co_return refusal_.ok() ? Outcome::kClosed : Outcome::kRefused;
  }
  stream_.NoTimeout();
  refusal_ = co_await DecodeBody();
  co_return refusal_.ok() ? Outcome::kRequest : Outcome::kRefused;
}

void Connection::SetBodyTimeout(absl::Time began, int64_t num_read) {
  const HttpLimits& limits = context_.limits;
  // Each byte received extends the deadline at the minimum rate, up to body_timeout in all.
  const absl::Duration paid =
      limits.progress_timeout + absl::Seconds(num_read) / limits.min_body_bytes_per_second;
  const absl::Time deadline = began + std::min(limits.body_timeout, paid);
  stream_.SetTimeout(std::min(limits.progress_timeout, deadline - SteadyNow()));
}

asio::awaitable<bool> Connection::ReadSizedBody(size_t num_bytes) {
  const absl::Time began = SteadyNow();
  std::string& body = request_.body;
  body.reserve(num_bytes + kBodyPaddingBytes);
  size_t num_read = std::min(buffer_.size(), num_bytes);
  body.assign(static_cast<const char*>(buffer_.cdata().data()), num_read);
  buffer_.consume(num_read);
  while (num_read < num_bytes) {
    if (num_read == body.size()) {
      const size_t next = std::min(num_bytes, num_read + kBodyStepBytes);
      refusal_ = request_.memory.GrowTo(static_cast<int64_t>(next) * kBodyCopies);
      if (!refusal_.ok()) co_return false;
      body.resize(next);
    }
    SetBodyTimeout(began, static_cast<int64_t>(num_read));
    ErrorCodeHolder error;
    num_read += co_await stream_.async_read_some(
        asio::buffer(body.data() + num_read, body.size() - num_read),
        asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
  }
  co_return true;
}

// Returns false if the connection has ended, or if the body is refused, which sets refusal_.
asio::awaitable<bool> Connection::ReadBodyBytes(int64_t max_bytes, bool is_kept) {
  const absl::Time began = SteadyNow();
  int64_t num_read = 0;
  ErrorCodeHolder error;
  parser_->eager(true);
  parser_->body_limit(static_cast<uint64_t>(max_bytes));
  while (!parser_->is_done() && !error) {
    if (!is_kept) parser_->get().body().clear();
    const int64_t num_kept = is_kept ? (num_read + kReadBufferBytes) * kBodyCopies : 0;
    absl::Status room = request_.memory.GrowTo(num_kept);
    if (!room.ok()) {
      refusal_ = std::move(room);
      co_return false;
    }
    SetBodyTimeout(began, num_read);
    num_read += static_cast<int64_t>(co_await beast::http::async_read_some(
        stream_, buffer_, *parser_, asio::redirect_error(asio::use_awaitable, error)));
  }
  if (error == beast::http::error::body_limit && route_ != nullptr) {
    refusal_ = BodyTooLarge("request body", *route_, limits_);
  } else if (IsParseError(error)) {
    refusal_ = WithDetail(absl::InvalidArgumentError("malformed HTTP body: " + error.message()),
                          "malformed_http");
  }
  co_return !error;
}

asio::awaitable<bool> Connection::AnswerExpectation() {
  if (!absl::EqualsIgnoreCase(AbslView(request_.HeaderValue("expect")), "100-continue")) {
    co_return true;
  }
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.SetTimeout(context_.limits.progress_timeout);
  ErrorCodeHolder error;
  co_await asio::async_write(stream_, asio::buffer(kContinue),
                             asio::redirect_error(asio::use_awaitable, error));
  co_return !error;
}

asio::awaitable<absl::Status> Connection::DecodeBody() {
  absl::Status status = CheckEncoding(request_);
  if (!status.ok()) co_return status;
  if (!IsIdentity(request_)) {
    const int64_t declared = DeclaredBytes(request_.body);
    auto inflating = Inflate();
    if (declared > 0 && declared < static_cast<int64_t>(kLargeBodyBytes)) {
      status = co_await std::move(inflating);
    } else {
      status = co_await context_.pool.Run(std::move(inflating));
    }
    if (!status.ok()) co_return status;
  }
  co_return request_.memory.GrowTo(MemoryToHandle(request_, *route_));
}

asio::awaitable<absl::Status> Connection::Inflate() {
  const auto reserve = [this](int64_t num_bytes) {
    return request_.memory.GrowTo(num_bytes * kBodyCopies);
  };
  absl::StatusOr<std::string> inflated = InflateBody(request_.body, *route_, limits_, reserve);
  if (!inflated.ok()) co_return inflated.status();
  request_.body = *std::move(inflated);
  co_return absl::OkStatus();
}

void Connection::FreeBody() {
  request_.FreeBody();
  request_.memory.Release();
}

asio::awaitable<bool> Connection::Refuse(absl::Status status) {
  FreeBody();
  // Read and drop a short body, so that the client can reuse the connection. A client that waits
  // for "100 Continue" will not send its body.
  bool keep_alive = can_skip_body_ && (is_body_read_ || parser_->is_done());
  if (can_skip_body_ && !keep_alive && request_.HeaderValue("expect").empty() &&
      parser_->content_length_remaining().value_or(kMaxSkippedBodyBytes + 1) <=
          static_cast<uint64_t>(kMaxSkippedBodyBytes)) {
    keep_alive = co_await ReadBodyBytes(kMaxSkippedBodyBytes, /*is_kept=*/false);
  }
  keep_alive = keep_alive && parser_->keep_alive() && !context_.is_leaving;
  Response answer = ErrorResponse(status);
  const bool is_written = co_await Write(std::move(answer), keep_alive);
  if (is_written || keep_alive) co_return is_written;
  co_await Linger();
  co_return false;
}

// Returns true if another request may follow.
asio::awaitable<bool> Connection::Write(Response response, bool keep_alive) {
  if (stream_.is_tls()) response.headers.push_back({"Strict-Transport-Security", kOneYear});
  if (route_ != nullptr && route_->carries_notices) {
    context_.hooks.notices.AddTo(request_, response);
  }
  keep_alive = keep_alive && !(response.stream && response.stream->is_endless);
  const std::string head = ResponseHead(response, keep_alive);
  const bool has_body = request_.method != "HEAD";
  const std::array<asio::const_buffer, 2> pieces = {
      asio::buffer(head), has_body ? asio::buffer(response.body) : asio::const_buffer()};
  // A large answer gets 1 s more per MiB.
  stream_.SetTimeout(context_.limits.progress_timeout + absl::Seconds(response.body.size() >> 20));
  // The kernel accepts an answer also for a client that has closed.
  const bool has_reader = response.on_written != nullptr && !client_.HasLeft();
  ErrorCodeHolder error;
  co_await asio::async_write(stream_, pieces, asio::redirect_error(asio::use_awaitable, error));
  bool is_whole = !error;
  if (is_whole && has_body && response.stream) is_whole = co_await WriteStream(*response.stream);
  if (is_whole && has_reader) response.on_written();
  ReportAnswer(response.status, response.request_id);
  co_return is_whole&& keep_alive;
}

void Connection::ReportAnswer(int status, const std::string& request_id) {
  const Answered answered = {.route = route_,
                             .status = status,
                             .took = absl::FromChrono(std::chrono::steady_clock::now() - began_at_),
                             .refusal = ErrorCode(refusal_)};
  if (context_.hooks.on_answered) context_.hooks.on_answered(answered);
  EndSpan(context_.hooks.tracer, request_, answered, request_id);
}

asio::awaitable<bool> Connection::WriteStream(const BodyStream& body) {
  int64_t num_left = body.num_bytes;
  while (num_left > 0 || body.is_endless) {
    stream_.NoTimeout();
    absl::StatusOr<std::string> piece = co_await body.next();
    if (!piece.ok() || piece->empty()) co_return false;
    num_left -= static_cast<int64_t>(piece->size());
    stream_.SetTimeout(context_.limits.progress_timeout);
    ErrorCodeHolder error;
    co_await asio::async_write(stream_, asio::buffer(*piece),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
  }
  co_return true;
}

asio::awaitable<void> Connection::Linger() {
  stream_.SetTimeout(kLingerTimeout);
  co_await stream_.ShutdownSend();
  std::string dropped(64 << 10, '\0');
  ErrorCodeHolder error;
  while (!error) {
    co_await stream_.socket().async_read_some(asio::buffer(dropped),
                                              asio::redirect_error(asio::use_awaitable, error));
  }
}

}  // namespace lathe::gateway
