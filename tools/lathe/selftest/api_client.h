// A client of the HTTP API: JSON calls, one connection each, with or without TLS.
#pragma once

#include <openssl/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/json/json.h"

namespace lathe::cli {

// Parts of http[s]://HOST[:PORT].
struct ApiUrl {
  bool has_tls = false;
  // Without the brackets of an IPv6 address.
  std::string host;
  std::string port;

  // Returns HOST:PORT, with brackets where they are needed.
  std::string Authority() const;
};

// Error usage unless `url` has that form.
absl::StatusOr<ApiUrl> ParseApiUrl(std::string url);

// Returns the JSON of an HTTP answer with a status of 2xx; else the error of ApiClient: Unavailable
// if the end of the answer is missing.
absl::StatusOr<Json> ParseApiAnswer(const std::string& text);

class ApiClient {
 public:
  // `ca_file`: PEM file of the authority that signed the server's certificate; empty: the system's.
  // InvalidArgument if it cannot be used.
  static absl::StatusOr<ApiClient> Create(ApiUrl url, const std::string& ca_file,
                                          std::string api_key);

  // Bounds all later calls together: they end at `deadline` (SteadyNow) at the latest, and as
  // Cancelled about a second after `is_stopped` (null: never) returns true. It is called on the
  // thread of the call, but not while the system looks for the server's address.
  void SetLimits(absl::Time deadline, std::function<bool()> is_stopped);

  // Sends `body` (null: none) to /api/v1/`path`. Returns the JSON of a 2xx answer. Errors:
  // Unavailable without an answer, DeadlineExceeded after `deadline` (SteadyNow), and for another
  // answer a code that says the same, with its words and RetryAfter: Unavailable for 5xx,
  // ResourceExhausted for 429, FailedPrecondition for statuses without a code of their own.
  absl::StatusOr<Json> Post(const std::string& path, const Json& body, absl::Time deadline);
  absl::StatusOr<Json> Get(const std::string& path, absl::Time deadline);

 private:
  struct ContextDeleter {
    void operator()(SSL_CTX* context) const;
  };

  ApiClient(ApiUrl url, std::string api_key) : url_(std::move(url)), api_key_(std::move(api_key)) {}

  absl::StatusOr<Json> Call(const std::string& method, const std::string& path,
                            const std::string& body, absl::Time deadline);
  absl::StatusOr<std::string> Exchange(const std::string& request, absl::Time deadline);
  BIO* Connector() const;
  absl::Status CheckStopped() const;

  const ApiUrl url_;
  const std::string api_key_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::function<bool()> is_stopped_;
  // Null without TLS.
  std::unique_ptr<SSL_CTX, ContextDeleter> tls_;
};

}  // namespace lathe::cli
