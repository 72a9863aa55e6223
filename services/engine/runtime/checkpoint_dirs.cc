#include "services/engine/runtime/checkpoint_dirs.h"

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
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

std::unique_ptr<CheckpointDirs> MakeCheckpointDirs(const std::filesystem::path& root,
                                                   const StoredCheckpoints& stored,
                                                   absl::Duration trash_kept) {
  if (stored.work == nullptr) return std::make_unique<LocalCheckpointDirs>(root, trash_kept);
  return std::make_unique<StoredCheckpointDirs>(stored, trash_kept);
}

}  // namespace lathe::engine
