// Remembers for seconds which keys the engine knows.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/auth/failed_attempts.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/router.h"

namespace lathe::gateway {

// Spares an rpc per request; what a key may do is decided by the engine alone, on every call. Any
// thread.
class CredentialCache {
 public:
  // Both must outlive it. `max_failed_keys` is the bound of FailedAttempts.
  CredentialCache(EngineClient& engine, Clock& clock, int64_t max_failed_keys)
      : engine_(engine), clock_(clock), failed_(clock, max_failed_keys) {}

  // Unauthenticated for a missing, malformed or unknown key, in the same words, and for a token
  // that is not valid or has expired; Unavailable while the engine cannot be asked and the route
  // insists; ResourceExhausted ("too_many_attempts") for an unknown key of an address that has
  // shown many.
  asio::awaitable<absl::Status> Check(const Route& route, const Request& request);

 private:
  struct Entry {
    absl::Time expires_at;
    absl::Status status;
  };
  asio::awaitable<absl::Status> CheckKey(const Request& request, absl::Duration timeout);
  // Unset: ask the engine.
  std::optional<absl::Status> Find(const std::string& api_key);
  // Whether the engine knew it when it was last asked.
  bool WasGood(const std::string& api_key);
  void Remember(const std::string& api_key, absl::Status status, absl::Duration lifetime);

  EngineClient& engine_;
  Clock& clock_;
  FailedAttempts failed_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
