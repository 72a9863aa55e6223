// The checkpoint folders in the trash, for administrators: what they hold, and how they come back.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Describes every folder in the trash by its manifest. Reads the disk.
absl::StatusOr<v1::ListTrashResponse> DescribeTrash(Runtime& runtime, const KeyRing& keys);

// Reads the manifest of a folder in the trash, and asks the store if it knows the checkpoint's run.
// An empty `tenant` name is the tenant of the manifest. NotFound: no such folder or tenant.
// FailedPrecondition `not_a_checkpoint`: a snapshot, an unnamed version, or a copy without
// `tenant`, as its manifest names the tenant of the source.
absl::StatusOr<AdoptCheckpoint> PlanAdoption(Runtime& runtime, const KeyRing& keys,
                                             const v1::AdoptCheckpointRequest& request);

}  // namespace lathe::engine
