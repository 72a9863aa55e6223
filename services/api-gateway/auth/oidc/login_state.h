// The state that a browser keeps while its user is at the identity provider. It is sealed, so the
// browser can neither read nor change it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::gateway {

inline constexpr size_t kSealKeyBytes = 32;

// Key with which gateways seal. All gateways of a service have the same keys.
struct SealKey {
  int64_t key_id = 0;
  std::string bytes;  // kSealKeyBytes random bytes
};

struct LoginState {
  std::string state;     // comes back with the callback
  std::string nonce;     // comes back in the ID token
  std::string verifier;  // of PKCE (RFC 7636)
  std::string next;      // path to which the browser is led in the end
  absl::Time began_at;
};

// A sign-in may take this long.
inline constexpr absl::Duration kLoginLifetime = absl::Minutes(10);

// Returns a state with fresh random texts.
LoginState MakeLoginState(std::string next, absl::Time now);

// Returns the code challenge of a verifier, by the method S256.
std::string CodeChallenge(const std::string& verifier);

// Seals with XChaCha20-Poly1305. The text has letters, digits, - and _.
std::string SealLogin(const LoginState& login, const SealKey& key);

// Opens what SealLogin made with one of `keys`. InvalidArgument: nobody of us made it.
// DeadlineExceeded: it is older than kLoginLifetime.
absl::StatusOr<LoginState> OpenLogin(std::string_view sealed, const std::vector<SealKey>& keys,
                                     absl::Time now);

// Returns `next` if it is a path of the dashboard with an optional query, and "/ui" otherwise.
std::string SafeNext(std::string_view next);

}  // namespace lathe::gateway
