// Short-lived JWTs that replace an API key.
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

// Issues and verifies tokens. A token holds only a key's id and its own expiry. Permissions are
// looked up when it is used, so revoking a key ends its tokens. Tokens are signed with Ed25519
// under a key in the store that changes every 30 days; the previous one still verifies.
// Thread-safe.
class TokenSigner {
 public:
  // The SDK needs well over five minutes.
  static constexpr absl::Duration kLifetime = absl::Hours(1);
  // Tolerated difference between the clocks of several machines.
  static constexpr absl::Duration kLeeway = absl::Seconds(60);

  // Both must outlive this.
  TokenSigner(Store& store, Clock& clock) : store_(store), clock_(clock) {}

  // Returns true if `credential` has the form of a token rather than of a key.
  static bool IsToken(std::string_view credential);

  struct Token {
    std::string jwt;
    absl::Time expires_at;
  };
  absl::StatusOr<Token> Issue(const std::string& key_id, const std::string& tenant_name);

  // Returns the key id in the token. Unauthenticated ("bad_token"): this store did not sign it, or
  // it expired. The text mentions expiry only if the signature is valid.
  absl::StatusOr<std::string> Verify(std::string_view jwt);

  // The common error for all invalid tokens.
  static absl::Status BadToken();

 private:
  // Returns the signing key of a period of 30 days, which is created on first use.
  absl::StatusOr<const Ed25519Key*> KeyOf(int64_t period);

  Store& store_;
  Clock& clock_;
  absl::Mutex mu_;
  std::map<int64_t, std::unique_ptr<Ed25519Key>> keys_ ABSL_GUARDED_BY(mu_);  // by period
};

}  // namespace lathe::engine
