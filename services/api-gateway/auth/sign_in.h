// Makes sessions for browsers.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/time/clock.h"
#include "protos/lathe/v1/sign_in.pb.h"
#include "services/api-gateway/auth/failed_attempts.h"
#include "services/api-gateway/auth/oidc/login_state.h"
#include "services/api-gateway/auth/oidc/provider.h"
#include "services/api-gateway/auth/session_cookies.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/work_pool.h"

namespace lathe::gateway {

struct SignInOptions {
  OidcOptions oidc;
  // Makes the calls to the identity provider.
  OidcProvider::Http http = HttpExchange;
};

// Answers the requests of /ui/auth. The engine decides who gets which session. Thread-safe.
class SignIn {
 public:
  // Sign-ins that may wait for the identity provider.
  static constexpr int kMaxWaiting = 64;

  // The references must outlive it. `public_url` is the configured address of the service; empty:
  // that of the request.
  SignIn(EngineClient& engine, Clock& clock, FailedAttempts& failed, std::string public_url,
         const SignInOptions& options)
      : engine_(engine),
        clock_(clock),
        failed_(failed),
        cookies_(public_url),
        public_url_(std::move(public_url)),
        provider_(options.oidc, clock, options.http) {}

  const SessionCookies& cookies() const { return cookies_; }
  // Returns the ways to sign in, as pages name them.
  std::vector<std::string> Methods() const;
  // Name of the identity provider for people; empty: none.
  std::string provider_name() const;

  // Begins a session that is bound to the key. The errors and the pace are those of requests with
  // such a key.
  asio::awaitable<absl::StatusOr<Response>> WithKey(const Request& request, std::string api_key);
  // Begins the session of a ticket and leads to /ui. A wrong ticket leads to the sign-in page.
  asio::awaitable<Response> WithTicket(const Request& request, std::string ticket);
  // Leads the browser to the identity provider. NotFound: there is none.
  asio::awaitable<absl::StatusOr<Response>> BeginLogin(const Request& request);
  // Answers the browser that comes back: with a session, or with the sign-in page and the reason.
  asio::awaitable<Response> EndLogin(const Request& request);
  // Returns where a user of `issuer` ends the session with the provider; empty: nowhere.
  std::string SignOutUrl(const Request& request, const std::string& issuer);

 private:
  // Adds the cookie of the session to `response`.
  void GiveSession(const Request& request, const v1::BeginSessionResponse& begun,
                   Response& response) const;

  // Runs `work`, which may block, on one of the threads for sign-ins. ResourceExhausted: many wait.
  template <typename T>
  asio::awaitable<absl::StatusOr<T>> OnThread(std::function<absl::StatusOr<T>()> work);
  // Returns the keys, which are at most `max_age` old.
  asio::awaitable<absl::StatusOr<std::vector<SealKey>>> ReadSealKeys(absl::Duration max_age);
  // Returns the sign-in that the browser began and that the callback continues.
  asio::awaitable<absl::StatusOr<LoginState>> TakeLogin(const Request& request);
  asio::awaitable<Response> FinishLogin(const Request& request, const LoginState& login);
  // Returns the answer to a person whom the provider has named.
  asio::awaitable<Response> BeginForClaims(const Request& request, const LoginState& login,
                                           const Json& claims);
  // Leads to the sign-in page with `code`, logs `status` and counts the attempt.
  Response Refuse(const Request& request, const char* code, const absl::Status& status);

  EngineClient& engine_;
  Clock& clock_;
  FailedAttempts& failed_;
  const SessionCookies cookies_;
  const std::string public_url_;
  OidcProvider provider_;
  absl::Mutex mu_;
  std::vector<SealKey> seal_keys_ ABSL_GUARDED_BY(mu_);  // the newest first
  absl::Time seal_keys_read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::atomic<int> num_waiting_ = 0;
  WorkPool pool_;
};

// Returns what the engine should know of the browser.
v1::BrowserInfo BrowserOf(const Request& request);

// Returns a 303 to `location` that no cache keeps.
Response RedirectTo(const std::string& location);

}  // namespace lathe::gateway
