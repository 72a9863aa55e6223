// A checkpoint's files: hard links to them, and checks against its row.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Creates the directory `to` beside `from`, with hard links to its plain files. Sharing is safe
// because the files never change. Copies the files if the file system has no links. The manifest
// still names the source, so `to` also gets a file kCopyNameFile with `tinker_path`. Durable on
// success; `to` is removed on failure. NotFound: `from` is missing.
absl::Status LinkFiles(const std::filesystem::path& from, const std::filesystem::path& to,
                       const std::string& tinker_path);

// Returns true if the directory of `row` below `root` is missing.
bool AreFilesMissing(const std::filesystem::path& root, const CheckpointRow& row);

// Returns NotFound `checkpoint_missing` if the directory of `row` below `root` is missing, and
// FailedPrecondition `checkpoint_damaged` if its manifest differs from the saved one. The worker
// checks the files that the manifest lists when it loads them.
absl::Status CheckFiles(const std::filesystem::path& root, const CheckpointRow& row);

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
