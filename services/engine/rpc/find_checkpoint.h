// Look-ups of checkpoints with access checks.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Finds a complete, unexpired checkpoint that is the tenant's own or public. InvalidArgument:
// `path`, the value of `field`, is malformed. NotFound: the tenant may not read it, or it does not
// exist.
absl::StatusOr<CheckpointRow> FindCheckpoint(Runtime& runtime, const std::string& tenant_id,
                                             const std::string& path, const std::string& field);

// Returns the tenant of a weights access token; "" if no token is given. PermissionDenied
// ("bad_weights_access_token"): the token is invalid.
absl::StatusOr<std::string> ReaderOf(const KeyRing& keys, const std::string& weights_access_token);

}  // namespace lathe::engine
