// A checkpoint's files, checked against its row.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns NotFound `checkpoint_missing` if the directory of `row` is missing, FailedPrecondition
// `checkpoint_damaged` if its manifest differs from the saved one, and Unavailable if a store of
// objects does not answer. The worker checks the files that the manifest lists when it loads them.
absl::Status CheckFiles(CheckpointDirs& dirs, const CheckpointRow& row);

// Finds a complete, unexpired checkpoint that is the tenant's own or public. InvalidArgument:
// `path`, the value of `field`, is malformed. NotFound: the tenant may not read it, or it does not
// exist.
absl::StatusOr<CheckpointRow> FindCheckpoint(Runtime& runtime, const std::string& tenant_id,
                                             const std::string& path, const std::string& field);

// Records in the owner's audit log that `caller`, of another tenant, reads a checkpoint with the
// owner's token `reader`. `use` is load or copy. Does nothing if `caller` needs no token for `row`.
absl::Status RecordRead(AuditLog& audit, const Caller& reader, const Caller& caller,
                        const CheckpointRow& row, const char* use);

}  // namespace lathe::engine
