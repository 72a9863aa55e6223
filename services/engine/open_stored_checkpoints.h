// Decides where an engine keeps checkpoints, before it leads.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "libs/common/object_store/storage_options.h"
#include "services/engine/runtime/checkpoint_dirs.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Opens the object store that the options name, and makes its place this installation's. A store
// that does not answer is claimed later. Returns empty StoredCheckpoints if the options name none.
//
// FailedPrecondition, PermissionDenied, InvalidArgument: the configuration is wrong. That includes
// options that leave earlier checkpoints behind: no object store after one was used, one while
// `checkpoints_dir` has checkpoints, or one that lacks those of the database. Their models would
// all be lost. Unavailable: the database does not answer, the keys of the object store are not
// valid now, or this machine's clock is wrong. `store` must outlive the result.
absl::StatusOr<StoredCheckpoints> OpenStoredCheckpoints(
    const StorageOptions& storage, const std::filesystem::path& checkpoints_dir, Store& store);

}  // namespace lathe::engine
