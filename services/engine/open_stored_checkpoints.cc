#include "services/engine/open_stored_checkpoints.h"

#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

// As for reads of a database. A client waits for them.
constexpr absl::Duration kObjectReadPatience = absl::Seconds(4);
// Deletions, for which nobody waits, may take this long.
constexpr absl::Duration kObjectWorkPatience = absl::Seconds(60);
// Secret from which the id of the place is made. It exists once an object store was used.
constexpr char kStoreSecret[] = "object_store_id";

absl::Status CheckNoneWasUsed(const std::filesystem::path& checkpoints_dir, Store& store) {
  ASSIGN_OR_RETURN(const bool was_used, store.HasSecret(kStoreSecret));
  if (!was_used) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "storage.files is missing, and this installation has kept checkpoints in an object store: "
      "set storage.files as before. Without it, models whose snapshots are there would be lost. ",
      "docs/deploy/object_storage.md says how to move them to ", checkpoints_dir.string()));
}

absl::Status CheckNoneIn(const std::filesystem::path& checkpoints_dir, const std::string& place) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(checkpoints_dir, error), end; !error && it != end;
       it.increment(error)) {
    if (!IsCheckpointDir(it->path().filename().string())) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        checkpoints_dir.string(), " has checkpoints, which ", place, " may lack: copy its folders ",
        "to checkpoints/ there, then move it aside (docs/deploy/object_storage.md)"));
  }
  return absl::OkStatus();
}

// Returns the error with which a start ends. Keys and a clock that are not valid now need no other
// options. A place that lacks checkpoints does.
absl::Status AsRefusal(const absl::Status& status) {
  if (ErrorCode(status) == kNotValidNow) return absl::UnavailableError(status.message());
  if (absl::IsNotFound(status)) return absl::FailedPreconditionError(status.message());
  return status;
}

}  // namespace

absl::StatusOr<StoredCheckpoints> OpenStoredCheckpoints(
    const StorageOptions& storage, const std::filesystem::path& checkpoints_dir, Store& store) {
  StoredCheckpoints stored;
  if (!storage.has_objects()) {
    RETURN_IF_ERROR(CheckNoneWasUsed(checkpoints_dir, store));
    return stored;
  }
  RETURN_IF_ERROR(CheckNoneIn(checkpoints_dir, storage.files));
  ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> reads,
                   OpenObjectStore(storage, kObjectReadPatience));
  ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> work,
                   OpenObjectStore(storage, kObjectWorkPatience));
  ASSIGN_OR_RETURN(std::shared_ptr<ObjectStore> copies,
                   OpenObjectStore(storage, kObjectWorkPatience));
  stored.reads = std::make_shared<CheckpointObjects>(std::move(reads));
  stored.work = std::make_shared<CheckpointObjects>(std::move(work));
  stored.copies = std::make_shared<CheckpointObjects>(std::move(copies));
  // A failure of the database is not taken for one of the object store.
  absl::Status database;
  const NamedDirs named_dirs = [&] {
    absl::StatusOr<std::vector<std::string>> named = store.NamedDirs();
    database = named.status();
    return named;
  };
  ASSIGN_OR_RETURN(const bool was_used, store.HasSecret(kStoreSecret));
  if (!was_used) {
    // A wrong place does not count as used: the operator may take the option away again.
    ASSIGN_OR_RETURN(const std::vector<std::string> named, store.NamedDirs());
    const absl::Status complete = CheckHasDirs(*stored.reads, named);
    if (!complete.ok()) return AsRefusal(complete);
  }
  ASSIGN_OR_RETURN(const std::string secret, store.Secret(kStoreSecret));
  stored.store_id = Sha256Hex(secret).substr(0, 32);
  stored.named_dirs = [&store] { return store.NamedDirs(); };
  // A start that failed to claim the place leaves the secret. So only the place itself decides.
  const absl::Status claimed =
      ClaimPlace(stored.store_id, was_used ? named_dirs : NamedDirs(), *stored.reads);
  if (!database.ok()) return absl::UnavailableError(database.message());
  if (!claimed.ok() && (ErrorCode(claimed) == kNotValidNow || !absl::IsUnavailable(claimed))) {
    return AsRefusal(claimed);
  }
  if (!claimed.ok()) {
    LogWarn("the object store does not answer; checkpoints cannot be saved or read until it does",
            {{"error", claimed.message()}});
  }
  return stored;
}

}  // namespace lathe::engine
