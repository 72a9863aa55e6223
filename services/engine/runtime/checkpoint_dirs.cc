#include "services/engine/runtime/checkpoint_dirs.h"

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/runtime/local_checkpoint_dirs.h"
#include "services/engine/runtime/stored_checkpoint_dirs.h"

namespace lathe::engine {

bool IsCheckpointDir(const std::string& name) {
  return name.size() == 33 && name[0] == 'c' &&
         name.find_first_not_of("0123456789abcdef", 1) == std::string::npos;
}

absl::Status CheckDirName(const std::string& dir) {
  if (IsCheckpointDir(dir)) return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(
                        absl::StrFormat("dir is '%s', expected c and 32 hexadecimal digits", dir)),
                    "invalid_field", "dir");
}

absl::Status ClaimPlace(const StoredCheckpoints& stored, CheckpointObjects& objects) {
  absl::Status owned = objects.CheckOwner(stored.store_id);
  if (!absl::IsNotFound(owned)) return owned;
  if (stored.names_files) {
    ASSIGN_OR_RETURN(const bool names_files, stored.names_files());
    if (names_files) {
      return absl::NotFoundError(absl::StrFormat(
          "%s has no LATHE_STORE, and the database names checkpoints there: storage.files is "
          "wrong, or the place was emptied or is not mounted. If the checkpoints were moved, copy "
          "that object, too; its text is %s (docs/deploy/object_storage.md)",
          objects.Address(), stored.store_id));
    }
  }
  return objects.Claim(stored.store_id);
}

std::unique_ptr<CheckpointDirs> MakeCheckpointDirs(const std::filesystem::path& root,
                                                   const StoredCheckpoints& stored,
                                                   absl::Duration trash_kept) {
  if (stored.work == nullptr) return std::make_unique<LocalCheckpointDirs>(root, trash_kept);
  return std::make_unique<StoredCheckpointDirs>(stored, trash_kept);
}

}  // namespace lathe::engine
