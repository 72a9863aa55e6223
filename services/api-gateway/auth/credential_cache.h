// Caches for a few seconds which API keys and sessions the engine accepts.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/auth/failed_attempts.h"
#include "services/api-gateway/auth/session_cookies.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/router.h"

namespace lathe::gateway {

// Saves one rpc per request. Only authentication is cached: the engine decides on every call what a
// key may do. Thread-safe.
class CredentialCache {
 public:
  // Most accepted keys to remember, and most refused ones.
  static constexpr size_t kMaxEntries = 10'000;

  // `engine` and `clock` must outlive it. `max_failed_keys` is the bound of FailedAttempts.
  // `public_url` as for SessionCookies.
  CredentialCache(EngineClient& engine, Clock& clock, int64_t max_failed_keys,
                  std::string_view public_url = "")
      : engine_(engine), clock_(clock), failed_(clock, max_failed_keys), cookies_(public_url) {}

  // Refused keys, also those of a sign-in.
  FailedAttempts& failed_attempts() { return failed_; }

  // Returns what is known of the key of `request` if it may be used on `route`. On a route for
  // browsers, the session of its cookie becomes the key. Errors:
  //   Unauthenticated    a missing, malformed or unknown key, all with the same message; or a
  //                      token that is invalid or expired
  //   Unavailable        the engine does not answer, and `route` needs its answer
  //   PermissionDenied   the errors of CheckCsrf
  //   ResourceExhausted  "too_many_attempts": a key not known to be good, from an address with many
  //                      refused keys
  asio::awaitable<absl::StatusOr<KeyState>> Check(const Route& route, Request& request);

 private:
  struct Entry {
    absl::Time expires_at;
    absl::Status status;
  };
  // Makes the session of the cookie the credential.
  absl::Status TakeSession(Request& request) const;
  asio::awaitable<absl::Status> CheckKey(const Request& request, absl::Duration timeout);
  // Returns the cached result, or nullopt if the engine has to be asked.
  std::optional<absl::Status> Find(const std::string& api_key);
  // Returns true if the engine accepted `api_key` the last time, even if that entry has expired.
  bool WasGood(const std::string& api_key);
  void Remember(const std::string& api_key, absl::Status status, absl::Duration lifetime);

  EngineClient& engine_;
  Clock& clock_;
  FailedAttempts failed_;
  const SessionCookies cookies_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, Entry> accepted_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Entry> refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
