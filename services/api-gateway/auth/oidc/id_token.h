// Checks of ID tokens (OpenID Connect Core 1.0, section 3.1.3.7).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/json/json.h"
#include "services/api-gateway/auth/oidc/jwk_set.h"

namespace lathe::gateway {

// Values that an ID token must have.
struct IdTokenChecks {
  std::string issuer;
  std::string client_id;
  std::string nonce;
  // Token that came along, which at_hash binds.
  std::string access_token;
  std::vector<std::string> algorithms;
  absl::Time now;
};

// Tolerated difference between the clocks of the provider and of this machine.
inline constexpr absl::Duration kIdTokenLeeway = absl::Seconds(60);
inline constexpr size_t kMaxSubjectBytes = 255;

// Returns the claims of `token`. NotFound: as JwkSet::Verify. InvalidArgument: the token is
// refused; the text says why, for logs, and quotes nothing of it.
absl::StatusOr<Json> CheckIdToken(const std::string& token, const JwkSet& keys,
                                  const IdTokenChecks& checks);

}  // namespace lathe::gateway
