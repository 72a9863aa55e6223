#include "services/engine/runtime/checkpoint_dirs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kTrashPeriod = absl::Hours(1);
// Names in the log line about directories that were moved.
constexpr size_t kMaxLoggedNames = 8;

bool IsCheckpointDir(const std::string& name) {
  return name.size() == 33 && name[0] == 'c' &&
         name.find_first_not_of("0123456789abcdef", 1) == std::string::npos;
}

std::vector<std::string> ListCheckpointDirs(const fs::path& root) {
  std::vector<std::string> dirs;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsCheckpointDir(name)) dirs.push_back(name);
  }
  return dirs;
}

int64_t BytesOf(const fs::path& dir) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

fs::file_time_type FileTime(absl::Time time) {
  return std::chrono::file_clock::from_sys(absl::ToChronoTime(time));
}

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) LogWarn("checkpoint files cannot be removed", {{"error", error.message()}});
}

}  // namespace

void CheckpointDirs::ListAtStart() {
  std::vector<std::string> dirs = ListCheckpointDirs(root_);
  absl::MutexLock lock(&mu_);
  at_start_ = std::move(dirs);
}

void CheckpointDirs::KeepOnly(const std::vector<std::string>& needed) {
  absl::MutexLock lock(&mu_);
  for (std::string& dir : at_start_) {
    if (!std::binary_search(needed.begin(), needed.end(), dir)) unnamed_.push_back(std::move(dir));
  }
  at_start_.clear();
}

void CheckpointDirs::Delete(std::string dir) {
  // An empty name would mean the parent of all checkpoints. No checkpoint has one.
  if (dir.empty()) return;
  absl::MutexLock lock(&mu_);
  to_delete_.push_back(std::move(dir));
}

absl::Status CheckpointDirs::CheckInTrash(const std::string& dir) const {
  if (!IsCheckpointDir(dir)) {
    return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                          "dir is '%s', expected c and 32 hexadecimal digits", dir)),
                      "invalid_field", "dir");
  }
  std::error_code error;
  if (fs::is_directory(PathInTrash(dir), error)) return absl::OkStatus();
  return WithDetail(absl::NotFoundError(absl::StrFormat("%s is not in the trash", dir)),
                    "not_found", "dir");
}

absl::Status CheckpointDirs::TakeFromTrash(const std::string& dir) {
  std::error_code error;
  fs::rename(PathInTrash(dir), root_ / dir, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("%s cannot be moved out of the trash: %s", dir, error.message()));
}

void CheckpointDirs::PutBack(std::string dir) {
  absl::MutexLock lock(&mu_);
  unnamed_.push_back(std::move(dir));
}

std::vector<std::string> CheckpointDirs::ListTrash() const {
  return ListCheckpointDirs(root_ / kTrash);
}

void CheckpointDirs::DoWork(absl::Time now) {
  std::vector<std::string> unnamed;
  std::vector<std::string> to_delete;
  {
    absl::MutexLock lock(&mu_);
    unnamed.swap(unnamed_);
    to_delete.swap(to_delete_);
  }
  if (!unnamed.empty()) MoveToTrash(unnamed, now);
  for (const std::string& dir : to_delete) Remove(root_ / dir);
  if (now - trash_looked_at_ >= kTrashPeriod) DeleteOldTrash(now);
}

void CheckpointDirs::MoveToTrash(const std::vector<std::string>& dirs, absl::Time now) {
  std::error_code error;
  fs::create_directories(root_ / kTrash, error);
  int64_t num_moved = 0;
  int64_t bytes = 0;
  std::string names;
  for (const std::string& dir : dirs) {
    bytes += BytesOf(root_ / dir);
    fs::last_write_time(root_ / dir, FileTime(now), error);
    if (!error) fs::rename(root_ / dir, root_ / kTrash / dir, error);
    if (error) {
      LogWarn("a checkpoint folder that no row names cannot be moved to the trash",
              {{"dir", dir}, {"error", error.message()}});
      continue;
    }
    if (static_cast<size_t>(num_moved++) < kMaxLoggedNames) names += " " + dir;
  }
  if (num_moved == 0) return;
  LogWarn("moved checkpoint folders that no row of the database names to the trash",
          {{"num_dirs", num_moved},
           {"bytes", bytes},
           {"trash", (root_ / kTrash).string()},
           {"kept", absl::FormatDuration(trash_kept_)},
           {"first", names}});
}

void CheckpointDirs::DeleteOldTrash(absl::Time now) {
  trash_looked_at_ = now;
  const fs::file_time_type before = FileTime(now - trash_kept_);
  for (const std::string& dir : ListCheckpointDirs(root_ / kTrash)) {
    const fs::path path = root_ / kTrash / dir;
    std::error_code error;
    const fs::file_time_type moved_at = fs::last_write_time(path, error);
    if (error || moved_at >= before) continue;
    LogInfo("deleting a checkpoint folder from the trash", {{"dir", dir}});
    Remove(path);
  }
}

}  // namespace lathe::engine
