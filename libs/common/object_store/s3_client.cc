#include "libs/common/object_store/s3_client.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/http_client/http_call.h"
#include "libs/common/object_store/local_file_error.h"
#include "libs/common/object_store/s3_errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe {
namespace {

// Answers that are no object: listings and errors.
constexpr size_t kMaxAnswerBytes = 16 << 20;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr int kMinFileAttempts = 3;
// A store copies a large object in minutes, and sends nothing meanwhile.
constexpr absl::Duration kLongestWork = absl::Minutes(10);
constexpr int64_t kHashedPiece = 1 << 20;

absl::StatusOr<std::string> HashOf(const S3Request& request) {
  if (!request.upload) return Sha256Hex(request.body);
  Sha256 hash;
  std::string piece(std::min(kHashedPiece, request.upload->num_bytes), '\0');
  int64_t done = 0;
  while (done < request.upload->num_bytes) {
    const auto wanted =
        static_cast<size_t>(std::min<int64_t>(kHashedPiece, request.upload->num_bytes - done));
    const ssize_t num_read =
        pread(request.upload->descriptor, piece.data(), wanted, request.upload->offset + done);
    if (num_read <= 0) {
      return absl::DataLossError(absl::StrFormat("a local file ended before its upload, at byte %d",
                                                 request.upload->offset + done));
    }
    hash.Update({piece.data(), static_cast<size_t>(num_read)});
    done += num_read;
  }
  return hash.FinishHex();
}

// Signatures need the parts of a query in the order of their names.
std::string EncodeQuery(std::vector<std::pair<std::string, std::string>> query) {
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) {
    absl::StrAppend(&text, text.empty() ? "?" : "&", EncodeQueryPart(name), "=",
                    EncodeQueryPart(value));
  }
  return text;
}

// Errors that another attempt does not change.
bool IsLasting(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_URL_MALFORMAT ||
         code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_CERTPROBLEM;
}

}  // namespace

// A connection pool. One thread uses it at a time.
class S3Client::Session {
 public:
  Session() : multi_(curl_multi_init()) {}
  ~Session() { curl_multi_cleanup(multi_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  CURLM* multi() const { return multi_; }

 private:
  CURLM* const multi_;
};

// One request with its attempts.
class S3Client::Transfer {
 public:
  Transfer(const S3Request& request, const S3Client& client) : request_(request), client_(client) {}
  ~Transfer() { End(nullptr); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  bool is_running() const { return curl_ != nullptr; }
  bool is_done() const { return is_done_; }
  absl::Time begins_at() const { return next_at_; }
  S3Response& response() { return response_; }
  CURL* curl() const { return curl_; }

  absl::Status Begin(const AwsKeys& keys, Session& session);
  // Handles the end of an attempt. Returns the error of the request if it is over.
  absl::Status Finish(CURLcode code, Session& session, AwsCredentials& credentials);
  void End(Session* session);

 private:
  static size_t OnHeader(char* data, size_t, size_t size, void* self);
  static size_t OnBody(char* data, size_t, size_t size, void* self);
  static size_t OnRead(char* data, size_t size, size_t count, void* self);
  static int OnSeek(void* self, curl_off_t offset, int origin);
  size_t Take(const char* data, size_t size);
  absl::Status Repeat(absl::Status status, absl::Duration wait);
  absl::Status CheckSize() const;
  void SetBody();
  void SetTimes();

  const S3Request& request_;
  const S3Client& client_;
  absl::Time began_at_ = absl::InfiniteFuture();  // first attempt
  absl::Time next_at_ = absl::InfinitePast();
  std::string content_hash_;
  std::string url_;
  CURL* curl_ = nullptr;
  curl_slist* headers_ = nullptr;
  S3Response response_;
  int64_t num_sent_ = 0;
  int64_t num_received_ = 0;
  int write_error_ = 0;  // errno of the local file
  int num_attempts_ = 0;
  AwsKeys keys_;  // of the attempt
  bool has_other_keys_ = false;
  bool is_done_ = false;
};

absl::Status S3Client::Transfer::Begin(const AwsKeys& keys, Session& session) {
  if (content_hash_.empty()) {
    ASSIGN_OR_RETURN(content_hash_, HashOf(request_));
  }
  const S3Options& options = client_.options_;
  response_ = {};
  keys_ = keys;
  num_sent_ = 0;
  num_received_ = 0;
  write_error_ = 0;
  if (num_attempts_++ == 0) began_at_ = SteadyNow();
  url_ = absl::StrCat(client_.bucket_url_, "/", request_.key, EncodeQuery(request_.query));
  const auto add = [this](const std::string& header) {
    headers_ = curl_slist_append(headers_, header.c_str());
  };
  add(absl::StrCat("x-amz-content-sha256: ", content_hash_));
  if (!keys.session_token.empty()) add("x-amz-security-token: " + keys.session_token);
  for (const std::string& header : request_.headers) add(header);
  curl_ = curl_easy_init();
  curl_easy_setopt(curl_, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl_, CURLOPT_USERAGENT, "lathe");
  curl_easy_setopt(curl_, CURLOPT_AWS_SIGV4,
                   absl::StrCat("aws:amz:", options.region, ":s3").c_str());
  curl_easy_setopt(curl_, CURLOPT_USERNAME, keys.access_key.c_str());
  curl_easy_setopt(curl_, CURLOPT_PASSWORD, keys.secret_key.c_str());
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(curl_, CURLOPT_PRIVATE, this);
  curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl_, CURLOPT_WRITEDATA, this);
  SetBody();
  SetTimes();
  curl_multi_add_handle(session.multi(), curl_);
  return absl::OkStatus();
}

void S3Client::Transfer::SetBody() {
  const bool has_body = request_.upload || !request_.body.empty() || request_.method == "PUT" ||
                        request_.method == "POST";
  if (request_.method == "HEAD") {
    curl_easy_setopt(curl_, CURLOPT_NOBODY, 1L);
  } else if (has_body) {
    const auto size =
        request_.upload ? request_.upload->num_bytes : static_cast<int64_t>(request_.body.size());
    curl_easy_setopt(curl_, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl_, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(curl_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
    curl_easy_setopt(curl_, CURLOPT_READFUNCTION, OnRead);
    curl_easy_setopt(curl_, CURLOPT_READDATA, this);
    curl_easy_setopt(curl_, CURLOPT_SEEKFUNCTION, OnSeek);
    curl_easy_setopt(curl_, CURLOPT_SEEKDATA, this);
    // curl asks before it sends a large body. An empty header would turn that off, but curl 7.88
    // would sign it. A store that does not answer gets the body this much later.
    curl_easy_setopt(curl_, CURLOPT_EXPECT_100_TIMEOUT_MS, 200L);
  }
  if (request_.method != "HEAD") {
    curl_easy_setopt(curl_, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  }
  if (request_.download) curl_easy_setopt(curl_, CURLOPT_BUFFERSIZE, 512L << 10);
}

void S3Client::Transfer::SetTimes() {
  const S3Options& options = client_.options_;
  const auto to_ms = [](absl::Duration time) {
    return static_cast<long>(absl::ToInt64Milliseconds(time));
  };
  curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT_MS,
                   to_ms(std::min(kConnectTimeout, options.patience)));
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, 1024L);
  const absl::Duration stall = request_.is_slow ? kLongestWork : options.stall;
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME,
                   std::max(1L, static_cast<long>(absl::ToInt64Seconds(stall))));
  // Transfers of files may take long while they make progress.
  if (request_.upload || request_.download) return;
  const absl::Duration longest = request_.is_slow ? kLongestWork : options.patience;
  const absl::Duration left = longest - (SteadyNow() - began_at_);
  curl_easy_setopt(curl_, CURLOPT_TIMEOUT_MS, to_ms(std::clamp(left, absl::Seconds(1), longest)));
}

void S3Client::Transfer::End(Session* session) {
  if (curl_ != nullptr) {
    if (session != nullptr) curl_multi_remove_handle(session->multi(), curl_);
    curl_easy_cleanup(curl_);
  }
  curl_slist_free_all(headers_);
  curl_ = nullptr;
  headers_ = nullptr;
}

size_t S3Client::Transfer::OnHeader(char* data, size_t, size_t size, void* self) {
  const std::string line(data, size);
  auto& headers = static_cast<Transfer*>(self)->response_.headers;
  const size_t colon = line.find(':');
  if (colon != std::string::npos && headers.size() < 100) {
    headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size;
}

size_t S3Client::Transfer::OnBody(char* data, size_t, size_t size, void* self) {
  return static_cast<Transfer*>(self)->Take(data, size);
}

size_t S3Client::Transfer::Take(const char* data, size_t size) {
  long status = 0;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
  if (!request_.download || status / 100 != 2) {
    if (response_.body.size() + size > kMaxAnswerBytes) return 0;
    response_.body.append(data, size);
    return size;
  }
  const FileSlice& slice = *request_.download;
  if (num_received_ + static_cast<int64_t>(size) > slice.num_bytes) return 0;
  size_t done = 0;
  while (done < size) {
    const ssize_t written =
        pwrite(slice.descriptor, data + done, size - done, slice.offset + num_received_);
    if (written <= 0) {
      write_error_ = written < 0 ? errno : EIO;
      return 0;
    }
    done += static_cast<size_t>(written);
    num_received_ += written;
  }
  if (client_.options_.on_fetched) client_.options_.on_fetched();
  return size;
}

size_t S3Client::Transfer::OnRead(char* data, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const S3Request& request = transfer.request_;
  const auto room = static_cast<int64_t>(size * count);
  if (request.upload) {
    const int64_t wanted = std::min(room, request.upload->num_bytes - transfer.num_sent_);
    const ssize_t num_read = pread(request.upload->descriptor, data, wanted,
                                   request.upload->offset + transfer.num_sent_);
    if (num_read < 0 || (num_read == 0 && wanted > 0)) return CURL_READFUNC_ABORT;
    transfer.num_sent_ += num_read;
    return static_cast<size_t>(num_read);
  }
  const int64_t wanted =
      std::min(room, static_cast<int64_t>(request.body.size()) - transfer.num_sent_);
  std::memcpy(data, request.body.data() + transfer.num_sent_, wanted);
  transfer.num_sent_ += wanted;
  return static_cast<size_t>(wanted);
}

// curl begins again by itself if a connection that it kept turns out to be closed.
int S3Client::Transfer::OnSeek(void* self, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(self)->num_sent_ = offset;
  return CURL_SEEKFUNC_OK;
}

absl::Status S3Client::Transfer::CheckSize() const {
  if (!request_.download || num_received_ == request_.download->num_bytes) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("GET %s: the store sent %d bytes, expected %d",
                                                client_.AddressOf(request_.key), num_received_,
                                                request_.download->num_bytes));
}

absl::Status S3Client::Transfer::Repeat(absl::Status status, absl::Duration wait) {
  const absl::Time now = SteadyNow();
  absl::BitGen random;
  const absl::Duration pause =
      std::min(kLongestPause, kFirstPause * (int64_t{1} << std::min(num_attempts_ - 1, 10)));
  next_at_ = now + std::max(wait, pause * absl::Uniform(random, 0.5, 1.0));
  // One attempt to move or copy a large file may take longer than the patience.
  const bool is_first_of_file = (request_.upload || request_.download || request_.is_slow) &&
                                num_attempts_ < kMinFileAttempts;
  const bool is_patient = next_at_ - began_at_ < client_.options_.patience;
  if (request_.may_repeat && (is_patient || is_first_of_file)) return absl::OkStatus();
  return absl::Status(status.code(),
                      absl::StrFormat("%s, after %d attempts in %s", std::string(status.message()),
                                      num_attempts_, absl::FormatDuration(now - began_at_)));
}

absl::Status S3Client::Transfer::Finish(CURLcode code, Session& session,
                                        AwsCredentials& credentials) {
  long status = 0;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
  response_.status = static_cast<int>(status);
  End(&session);
  const std::string address = client_.AddressOf(request_.key);
  // An answer may come before the whole body is sent; curl then counts the rest as an error.
  const bool has_answer = status >= 300;
  if (code != CURLE_OK && !has_answer) {
    std::string message = absl::StrFormat("%s %s at %s: %s", request_.method, address,
                                          client_.bucket_url_, curl_easy_strerror(code));
    if (write_error_ != 0) return LocalFileError("copy of " + address, "write", write_error_);
    if (code == CURLE_WRITE_ERROR && request_.download) {
      message = absl::StrFormat("GET %s: the store sent more than the %d bytes of the range",
                                address, request_.download->num_bytes);
    }
    if (IsLasting(code)) return absl::FailedPreconditionError(message);
    return Repeat(absl::UnavailableError(message), absl::ZeroDuration());
  }
  if (status / 100 == 2) {
    if (absl::Status size = CheckSize(); !size.ok()) return Repeat(size, absl::ZeroDuration());
    is_done_ = true;
    return absl::OkStatus();
  }
  S3Failure failure = ReadFailure(response_, request_.method, address);
  if (failure.wants_other_keys && !has_other_keys_) {
    has_other_keys_ = true;
    credentials.Forget(keys_);
    next_at_ = absl::InfinitePast();
    return absl::OkStatus();
  }
  if (!failure.may_pass) return failure.status;
  int64_t seconds = 0;
  const auto wait = response_.headers.find("retry-after");
  if (wait != response_.headers.end()) static_cast<void>(absl::SimpleAtoi(wait->second, &seconds));
  return Repeat(failure.status, absl::Seconds(std::clamp<int64_t>(seconds, 0, 30)));
}

S3Client::S3Client(S3Options options, AwsCredentials::Environment environment)
    : options_(std::move(options)),
      bucket_url_(BucketUrl(options_)),
      credentials_(std::move(environment), options_.region) {
  InitCurlOnce();
}

S3Client::~S3Client() = default;

std::string S3Client::AddressOf(const std::string& key) const {
  return absl::StrCat("s3://", options_.bucket, key.empty() ? "" : "/", key);
}

std::unique_ptr<S3Client::Session> S3Client::TakeSession() {
  {
    absl::MutexLock lock(&mu_);
    if (!idle_.empty()) {
      std::unique_ptr<Session> session = std::move(idle_.back());
      idle_.pop_back();
      return session;
    }
  }
  return std::make_unique<Session>();
}

void S3Client::GiveBack(std::unique_ptr<Session> session) {
  absl::MutexLock lock(&mu_);
  idle_.push_back(std::move(session));
}

absl::StatusOr<S3Response> S3Client::Run(const S3Request& request) {
  ASSIGN_OR_RETURN(std::vector<S3Response> responses, RunAll({request}));
  return std::move(responses[0]);
}

absl::StatusOr<std::vector<S3Response>> S3Client::RunAll(const std::vector<S3Request>& requests) {
  // The transfers end before the session whose handles they hold.
  std::unique_ptr<Session> session = TakeSession();
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (const S3Request& request : requests) {
    transfers.push_back(std::make_unique<Transfer>(request, *this));
  }
  const auto stop = [&](absl::Status status) {
    for (const auto& transfer : transfers) transfer->End(session.get());
    GiveBack(std::move(session));
    return status;
  };
  size_t num_done = 0;
  int num_running = 0;
  while (num_done < transfers.size()) {
    if (is_cancelled_) return stop(absl::UnavailableError("the process is stopping"));
    absl::Time next_at = SteadyNow() + absl::Seconds(1);
    for (const auto& transfer : transfers) {
      if (transfer->is_done() || transfer->is_running()) continue;
      if (num_running >= options_.num_parallel) break;
      if (transfer->begins_at() > SteadyNow()) {
        next_at = std::min(next_at, transfer->begins_at());
        continue;
      }
      const absl::StatusOr<AwsKeys> keys = credentials_.Get();
      if (!keys.ok()) return stop(keys.status());
      if (absl::Status begun = transfer->Begin(*keys, *session); !begun.ok()) return stop(begun);
      ++num_running;
    }
    int ignored = 0;
    curl_multi_perform(session->multi(), &ignored);
    while (const CURLMsg* const message = curl_multi_info_read(session->multi(), &ignored)) {
      if (message->msg != CURLMSG_DONE) continue;
      char* owner = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
      auto* const transfer = reinterpret_cast<Transfer*>(owner);
      --num_running;
      const absl::Status status = transfer->Finish(message->data.result, *session, credentials_);
      if (!status.ok()) return stop(status);
      if (transfer->is_done()) ++num_done;
    }
    if (num_done == transfers.size()) break;
    const auto wait = std::clamp(next_at - SteadyNow(), absl::ZeroDuration(), absl::Seconds(1));
    curl_multi_poll(session->multi(), nullptr, 0,
                    static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1, nullptr);
  }
  std::vector<S3Response> responses;
  for (const auto& transfer : transfers) responses.push_back(std::move(transfer->response()));
  GiveBack(std::move(session));
  return responses;
}

}  // namespace lathe
