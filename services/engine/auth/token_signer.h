// Short-lived JWTs that stand for an API key.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/digest/ed25519.h"
#include "libs/common/time/clock.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// A token says whose key it stands for and when it ends; what the key may do is looked up when it
// is used, so revoking a key ends its tokens. Signed with Ed25519 under a key of the store that
// changes every 30 days; the one before still verifies. Thread-safe.
class TokenSigner {
 public:
  // The SDK wants well over five minutes (tinker-api 6.3).
  static constexpr absl::Duration kLifetime = absl::Hours(1);
  // Clocks of several machines may differ by this much.
  static constexpr absl::Duration kLeeway = absl::Seconds(60);

  // Both must outlive this.
  TokenSigner(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  // Whether `credential` has the form of a token, as opposed to a key.
  static bool IsToken(std::string_view credential);

  struct Token {
    std::string jwt;
    absl::Time expires_at;
  };
  absl::StatusOr<Token> Issue(const std::string& key_id, const std::string& tenant_name);

  // The key id that the token stands for. Unauthenticated ("bad_token") for anything that this has
  // not signed; only of a token that it has signed it tells that its time is over.
  absl::StatusOr<std::string> Verify(std::string_view jwt);

  // The one text for tokens that are not valid.
  static absl::Status BadToken();

 private:
  // The signing key of a period of 30 days; made on first use.
  absl::StatusOr<const Ed25519Key*> KeyOf(int64_t period);

  Store& store_;
  Clock& clock_;
  absl::Mutex mu_;
  std::map<int64_t, std::unique_ptr<Ed25519Key>> keys_ ABSL_GUARDED_BY(mu_);  // by period
};

}  // namespace lathe::engine
