#include "services/engine/runtime/checkpoint_dirs.h"

#include <algorithm>
#include <iterator>

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

absl::Status CheckHasDirs(CheckpointObjects& objects, const std::vector<std::string>& named) {
  if (named.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<std::string> listed, objects.ListDirs());
  std::sort(listed.begin(), listed.end());
  std::vector<std::string> missing;
  std::set_difference(named.begin(), named.end(), listed.begin(), listed.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrFormat(
      "%s lacks %d of the %d directories that the database names, such as checkpoints/%s: "
      "storage.files is wrong, the place was emptied or is not mounted, or the copy to it is not "
      "complete (docs/deploy/object_storage.md)",
      objects.Address(), missing.size(), named.size(), missing.front()));
}

absl::Status ClaimPlace(const std::string& store_id, const NamedDirs& named_dirs,
                        CheckpointObjects& objects) {
  absl::Status owned = objects.CheckOwner(store_id);
  if (!absl::IsNotFound(owned)) return owned;
  if (named_dirs) {
    ASSIGN_OR_RETURN(const std::vector<std::string> named, named_dirs());
    RETURN_IF_ERROR(CheckHasDirs(objects, named));
  }
  return objects.Claim(store_id);
}

std::unique_ptr<CheckpointDirs> MakeCheckpointDirs(const std::filesystem::path& root,
                                                   const StoredCheckpoints& stored,
                                                   absl::Duration trash_kept) {
  if (stored.work == nullptr) return std::make_unique<LocalCheckpointDirs>(root, trash_kept);
  return std::make_unique<StoredCheckpointDirs>(stored, trash_kept);
}

}  // namespace lathe::engine
