// Look-ups of checkpoints for those who may read them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Own or public, complete and not expired. InvalidArgument when `path`, which came in `field`, is
// no path; NotFound for all that the tenant may not read.
absl::StatusOr<CheckpointRow> FindCheckpoint(Runtime& runtime, const std::string& tenant_id,
                                             const std::string& path, const std::string& field);

// The tenant of a weights access token; "" when none was given. PermissionDenied
// ("bad_weights_access_token") when it is not valid.
absl::StatusOr<std::string> ReaderOf(const KeyRing& keys, const std::string& weights_access_token);

}  // namespace lathe::engine
