#include "tools/lathe/selftest/api_client.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

constexpr std::size_t kMaxJsonBytes = 16 << 20;
constexpr std::size_t kMaxRefusal = 500;
constexpr uint64_t kMaxRetryAfterSeconds = 3600;
// OpenSSL polls a socket that is not ready this often.
constexpr unsigned kNapMs = 20;

struct ConnectionDeleter {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using ConnectionPtr = std::unique_ptr<BIO, ConnectionDeleter>;

std::string LastReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "the connection ended" : reason;
}

bool IsNumericHost(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Waits up to a second until an operation that wants a retry can go on.
absl::Status AwaitRetry(BIO* bio, absl::Time deadline, const char* what) {
  if (!BIO_should_retry(bio)) {
    return absl::UnavailableError(absl::StrCat("cannot ", what, ": ", LastReason()));
  }
  if (SteadyNow() < deadline && BIO_wait(bio, std::time(nullptr) + 1, kNapMs) >= 0) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat("cannot ", what, " in time"));
}

absl::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return http_status >= 500 ? absl::StatusCode::kUnavailable
                                : absl::StatusCode::kFailedPrecondition;
  }
}

// Returns the number in the line `name` (lower case) of a head.
std::optional<uint64_t> NumberIn(const std::string& head, const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(head);
  const std::string start = absl::StrCat("\r\n", name, ":");
  const std::size_t at = lower.find(start);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + start.size();
  uint64_t number = 0;
  if (!absl::SimpleAtoi(lower.substr(begin, lower.find("\r\n", begin) - begin), &number)) {
    return std::nullopt;
  }
  return number;
}

absl::Duration RetryAfterOf(const std::string& head) {
  return absl::Seconds(std::min(NumberIn(head, "retry-after").value_or(0), kMaxRetryAfterSeconds));
}

absl::Status RefusalOf(int http_status, const std::string& head, const std::string& body) {
  const absl::StatusOr<Json> json = ParseJson(body, "the answer");
  std::string words = body;
  if (json.ok() && JsonHas(*json, "error")) {
    words = JsonString((*json)["error"], "message").value_or(body);
  }
  return WithRetryAfter(
      absl::Status(CodeOf(http_status), absl::StrCat("answered ", http_status, ": ",
                                                     SafeText(words.substr(0, kMaxRefusal)))),
      RetryAfterOf(head));
}

}  // namespace

absl::StatusOr<Json> ParseApiAnswer(const std::string& text) {
  constexpr std::size_t kStatusEnd = 12;
  int status = 0;
  if (text.size() < kStatusEnd || text.compare(0, 7, "HTTP/1.") != 0 ||
      !absl::SimpleAtoi(text.substr(9, 3), &status)) {
    return absl::UnavailableError("the answer is not HTTP, or was cut");
  }
  const std::size_t end_of_head = text.find("\r\n\r\n");
  if (end_of_head == std::string::npos) {
    return absl::UnavailableError("the answer was cut within its head");
  }
  const std::string head = text.substr(0, end_of_head + 2);
  const std::string body = text.substr(end_of_head + 4);
  if (const std::size_t length = NumberIn(head, "content-length").value_or(0);
      body.size() < length) {
    return absl::UnavailableError(
        absl::StrCat("the answer was cut: ", body.size(), " of ", length, " bytes"));
  }
  return status / 100 == 2 ? ParseJson(body, "the answer") : RefusalOf(status, head, body);
}

std::string ApiUrl::Authority() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<ApiUrl> ParseApiUrl(std::string url) {
  const std::string given = url;
  const auto refuse = [&given] {
    return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                          "url is '", given, "', expected http://HOST:PORT or https://HOST:PORT")),
                      "usage", "url");
  };
  ApiUrl parsed;
  parsed.has_tls = url.compare(0, 8, "https://") == 0;
  if (!parsed.has_tls && url.compare(0, 7, "http://") != 0) return refuse();
  url = url.substr(parsed.has_tls ? 8 : 7);
  if (!url.empty() && url.back() == '/') url.pop_back();
  const std::size_t bracket = url.rfind(']');
  const std::size_t colon = url.rfind(':');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  parsed.port = has_port ? url.substr(colon + 1) : parsed.has_tls ? "443" : "80";
  parsed.host = has_port ? url.substr(0, colon) : url;
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  int port = 0;
  const bool is_good = absl::SimpleAtoi(parsed.port, &port) && port > 0 && port <= 65535 &&
                       !parsed.host.empty() && parsed.host.find('/') == std::string::npos;
  if (!is_good) return refuse();
  return parsed;
}

void ApiClient::ContextDeleter::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

absl::StatusOr<ApiClient> ApiClient::Create(ApiUrl url, const std::string& ca_file,
                                            std::string api_key) {
  ApiClient client(std::move(url), std::move(api_key));
  if (!client.url_.has_tls) return client;
  client.tls_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* const context = client.tls_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const int is_loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                        : SSL_CTX_load_verify_file(context, ca_file.c_str());
  if (is_loaded == 1) return client;
  return absl::InvalidArgumentError(
      absl::StrCat("ca '", ca_file, "' cannot be used: ", LastReason()));
}

BIO* ApiClient::Connector() const {
  if (tls_ == nullptr) return BIO_new_connect(url_.Authority().c_str());
  BIO* const bio = BIO_new_ssl_connect(tls_.get());
  BIO_set_conn_hostname(bio, url_.Authority().c_str());
  SSL* ssl = nullptr;
  BIO_get_ssl(bio, &ssl);
  SSL_set_mode(ssl, SSL_MODE_AUTO_RETRY);
  if (IsNumericHost(url_.host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), url_.host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl, url_.host.c_str());
    SSL_set1_host(ssl, url_.host.c_str());
  }
  return bio;
}

void ApiClient::SetLimits(absl::Time deadline, std::function<bool()> is_stopped) {
  deadline_ = deadline;
  is_stopped_ = std::move(is_stopped);
}

absl::Status ApiClient::CheckStopped() const {
  return is_stopped_ && is_stopped_() ? absl::CancelledError("") : absl::OkStatus();
}

absl::StatusOr<std::string> ApiClient::Exchange(const std::string& request, absl::Time deadline) {
  const ConnectionPtr bio(Connector());
  BIO_set_nbio(bio.get(), 1);
  while (BIO_do_connect(bio.get()) <= 0) {
    RETURN_IF_ERROR(CheckStopped());
    RETURN_IF_ERROR(AwaitRetry(bio.get(), deadline, "connect"));
  }
  std::size_t num_sent = 0;
  while (num_sent < request.size()) {
    const int sent = BIO_write(bio.get(), request.data() + num_sent,
                               static_cast<int>(request.size() - num_sent));
    if (sent > 0) num_sent += static_cast<std::size_t>(sent);
    if (sent > 0) continue;
    RETURN_IF_ERROR(CheckStopped());
    RETURN_IF_ERROR(AwaitRetry(bio.get(), deadline, "send"));
  }
  std::string answer;
  char piece[16384];
  while (answer.size() < kMaxJsonBytes) {
    const int got = BIO_read(bio.get(), piece, sizeof(piece));
    if (got > 0) answer.append(piece, static_cast<std::size_t>(got));
    if (got > 0) continue;
    if (!BIO_should_retry(bio.get()) && !answer.empty()) break;
    RETURN_IF_ERROR(CheckStopped());
    RETURN_IF_ERROR(AwaitRetry(bio.get(), deadline, "read the answer"));
  }
  ERR_clear_error();
  return answer;
}

absl::StatusOr<Json> ApiClient::Call(const std::string& method, const std::string& path,
                                     const std::string& body, absl::Time deadline) {
  const std::string request =
      absl::StrCat(method, " /api/v1/", path, " HTTP/1.1\r\nHost: ", url_.Authority(),
                   "\r\nX-API-Key: ", api_key_,
                   "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                   "\r\nConnection: close\r\n\r\n", body);
  RETURN_IF_ERROR(CheckStopped());
  ASSIGN_OR_RETURN(const std::string text, Exchange(request, std::min(deadline, deadline_)));
  return ParseApiAnswer(text);
}

absl::StatusOr<Json> ApiClient::Post(const std::string& path, const Json& body,
                                     absl::Time deadline) {
  return Call("POST", path, ToJsonText(body), deadline);
}

absl::StatusOr<Json> ApiClient::Get(const std::string& path, absl::Time deadline) {
  return Call("GET", path, "", deadline);
}

}  // namespace lathe::cli
