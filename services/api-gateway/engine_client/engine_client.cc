#include "services/api-gateway/engine_client/engine_client.h"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/delivered_header.h"
#include "libs/common/time/clock.h"

namespace lathe::gateway {
namespace {

// Error code of an engine that is not the leader.
constexpr char kNotLeader[] = "not_leader";
// Error code of an engine that does not accept the gateway's secret.
constexpr char kNotAGateway[] = "not_a_gateway";

// The stream has reported it by then.
constexpr absl::Duration kDeliveryKept = absl::Seconds(1);
// Failed requests are few. A flood of them costs each call no more than a look at these.
constexpr size_t kMaxDeliveries = 64;

}  // namespace

EngineClient::EngineClient(const std::vector<std::string>& addresses, const Dialer& dialer,
                           std::string secret_file)
    : dialer_(dialer), secret_file_(std::move(secret_file)) {
  for (const std::string& address : addresses) {
    const std::shared_ptr<grpc::Channel> channel = dialer_.Dial(address);
    peers_.push_back({address, channel, v1::Engine::NewStub(channel)});
  }
  ReadSecret();
}

void EngineClient::Prove(grpc::ClientContext& context) const {
  absl::MutexLock lock(&mu_);
  if (!secret_.empty()) context.AddMetadata(kGatewaySecretHeader, secret_);
}

void EngineClient::NoteDelivered(const std::string& request_id, const std::string& api_key) {
  absl::MutexLock lock(&mu_);
  if (deliveries_.size() == kMaxDeliveries) deliveries_.pop_front();
  deliveries_.push_back({request_id, api_key, SteadyNow()});
}

void EngineClient::ReportDelivered(const std::string& api_key, grpc::ClientContext& context) {
  absl::MutexLock lock(&mu_);
  const absl::Time oldest = SteadyNow() - kDeliveryKept;
  while (!deliveries_.empty() && deliveries_.front().noted < oldest) deliveries_.pop_front();
  for (const Delivery& delivery : deliveries_) {
    if (delivery.api_key == api_key) context.AddMetadata(kDeliveredHeader, delivery.request_id);
  }
}

void EngineClient::ReadSecret() {
  if (secret_file_.empty()) return;
  std::string secret = ReadSecretFile(secret_file_);
  absl::MutexLock lock(&mu_);
  secret_ = std::move(secret);
}

absl::Status EngineClient::ForClient(absl::Status error) {
  const std::string code = ErrorCode(error);
  // The messages do not reveal which process leads.
  if (code == kNotLeader) {
    return absl::UnavailableError("no engine leads at the moment; try again");
  }
  if (code == kNotAGateway) {
    return absl::UnavailableError("the engine refuses this gateway, whose log says why");
  }
  return error;
}

asio::awaitable<absl::Status> EngineClient::Run(Start start, Caller caller, absl::Duration timeout,
                                                CallStop* stop) {
  struct State {
    grpc::ClientContext context;
    Start start;
  };
  const auto state = std::make_shared<State>();
  state->start = std::move(start);
  SetDeadline(state->context, timeout);
  if (!caller.api_key.empty()) {
    state->context.AddMetadata(IsUserSession(caller.api_key) ? kUserSessionHeader : "x-api-key",
                               caller.api_key);
  }
  if (caller.span.is_valid()) {
    state->context.AddMetadata(kTraceparent, FormatTraceparent(caller.span));
  }
  Prove(state->context);
  ReportDelivered(caller.api_key, state->context);
  Peer& peer = peers_[current_];
  const LiveCall live(*this, peer, state->context, stop);
  const auto begin = [&](auto&& handler) {
    // std::function needs a copyable callable, hence the shared_ptr. The work guard keeps the
    // io_context running until the call ends.
    struct Pending {
      std::decay_t<decltype(handler)> resume;
      decltype(asio::make_work_guard(handler)) guard;
      std::shared_ptr<State> state;
    };
    {
      absl::MutexLock lock(&mu_);
      ++num_unanswered_;
    }
    auto guard = asio::make_work_guard(handler);
    auto pending = std::make_shared<Pending>(
        Pending{std::forward<decltype(handler)>(handler), std::move(guard), state});
    state->start(peer, &state->context,
                 [this, pending = std::move(pending)](grpc::Status answer) mutable {
                   // The posted handler owns the call's state, so that this gRPC thread does not
                   // release the channel (see WatchStream).
                   const auto executor = pending->guard.get_executor();
                   asio::post(executor,
                              [pending = std::move(pending), answer = std::move(answer)]() mutable {
                                pending->resume(std::move(answer));
                              });
                   absl::MutexLock lock(&mu_);
                   --num_unanswered_;
                 });
  };
  const grpc::Status status =
      co_await asio::async_initiate<const asio::use_awaitable_t<>, void(grpc::Status)>(
          begin, asio::use_awaitable);
  co_return status.ok() ? absl::OkStatus() : Failed(live, status);
}

EngineClient::~EngineClient() {
  CancelAll();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int64_t* num_unanswered) { return *num_unanswered == 0; }, &num_unanswered_));
}

void EngineClient::CancelAll() {
  absl::MutexLock lock(&mu_);
  for (LiveCall* call : calls_) call->context_.TryCancel();
}

void EngineClient::Abandon(const std::string& address) {
  ReportUnavailable(address);
  absl::MutexLock lock(&mu_);
  for (LiveCall* call : calls_) {
    if (call->peer_.address != address) continue;
    call->is_abandoned_ = true;
    call->context_.TryCancel();
  }
}

absl::Status EngineClient::Failed(const LiveCall& call, const grpc::Status& status) {
  if (call.is_abandoned()) return absl::UnavailableError("the engine does not answer; try again");
  return ForClient(FromGrpcStatus(status));
}

std::string EngineClient::current_address() const { return peers_[current_].address; }

void EngineClient::ReportUnavailable(const std::string& address) {
  size_t index = current_;
  if (peers_[index].address != address) return;  // already switched
  current_.compare_exchange_strong(index, (index + 1) % peers_.size());
}

void CallStop::Stop() {
  absl::MutexLock lock(&mu_);
  is_stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void CallStop::Begin(grpc::ClientContext& context) {
  absl::MutexLock lock(&mu_);
  context_ = &context;
  if (is_stopped_) context.TryCancel();
}

void CallStop::End() {
  absl::MutexLock lock(&mu_);
  context_ = nullptr;
}

EngineClient::LiveCall::LiveCall(EngineClient& client, const Peer& peer,
                                 grpc::ClientContext& context, CallStop* stop)
    : client_(client), peer_(peer), context_(context), stop_(stop) {
  FailPoint("gateway.engine.before");
  if (stop_ != nullptr) stop_->Begin(context_);
  absl::MutexLock lock(&client_.mu_);
  client_.calls_.insert(this);
  // The engine may have been abandoned before this call was registered.
  is_abandoned_ = client_.current_address() != peer_.address;
  if (is_abandoned_) context_.TryCancel();
}

EngineClient::LiveCall::~LiveCall() {
  FailPoint("gateway.engine.after");
  if (stop_ != nullptr) stop_->End();
  absl::MutexLock lock(&client_.mu_);
  client_.calls_.erase(this);
}

bool EngineClient::LiveCall::is_abandoned() const {
  absl::MutexLock lock(&client_.mu_);
  return is_abandoned_;
}

}  // namespace lathe::gateway
