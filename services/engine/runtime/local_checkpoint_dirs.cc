#include "services/engine/runtime/local_checkpoint_dirs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kTrashPeriod = absl::Hours(1);
// Names in the log line about directories that were moved.
constexpr size_t kMaxLoggedNames = 8;

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

absl::Status CopyStatus(const std::error_code& error) {
  if (!error) return absl::OkStatus();
  if (error == std::errc::no_such_file_or_directory) {
    return WithDetail(absl::NotFoundError("the checkpoint's files are gone"), "checkpoint_missing",
                      "source_path");
  }
  if (error == std::errc::no_space_on_device) {
    return absl::ResourceExhaustedError("the disk is full");
  }
  return absl::InternalError("the checkpoint's files cannot be copied: " + error.message());
}

absl::Status WriteName(const fs::path& file, const std::string& tinker_path) {
  std::ofstream out(file);
  out << tinker_path;
  out.close();
  return out ? absl::OkStatus()
             : absl::InternalError("the copy's name cannot be written to " + file.string());
}

absl::Status LinkInto(const fs::path& from, const fs::path& to, const std::string& tinker_path) {
  std::error_code error;
  fs::create_directory(to, error);
  RETURN_IF_ERROR(CopyStatus(error));
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file(error) || it->is_symlink(error)) continue;
    if (it->path().filename() == kCopyNameFile) continue;  // from a source that is a copy
    const fs::path target = to / it->path().filename();
    fs::create_hard_link(it->path(), target, error);
    if (error == std::errc::no_such_file_or_directory) break;
    if (error) fs::copy_file(it->path(), target, error);
    if (error) break;
  }
  RETURN_IF_ERROR(CopyStatus(error));
  RETURN_IF_ERROR(WriteName(to / kCopyNameFile, tinker_path));
  RETURN_IF_ERROR(SyncDirectory(to));
  return SyncDirectory(to.parent_path());
}

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) LogWarn("checkpoint files cannot be removed", {{"error", error.message()}});
}

}  // namespace

void LocalCheckpointDirs::ListAtStart() {
  std::vector<std::string> dirs = ListCheckpointDirs(root_);
  absl::MutexLock lock(&mu_);
  at_start_ = std::move(dirs);
}

void LocalCheckpointDirs::KeepOnly(const std::vector<std::string>& needed) {
  absl::MutexLock lock(&mu_);
  for (std::string& dir : at_start_) {
    if (!std::binary_search(needed.begin(), needed.end(), dir)) unnamed_.push_back(std::move(dir));
  }
  at_start_.clear();
}

void LocalCheckpointDirs::Delete(std::string dir) {
  // An empty name would mean the parent of all checkpoints. No checkpoint has one.
  if (dir.empty()) return;
  absl::MutexLock lock(&mu_);
  to_delete_.push_back(std::move(dir));
}

absl::Status LocalCheckpointDirs::CheckInTrash(const std::string& dir) {
  RETURN_IF_ERROR(CheckDirName(dir));
  std::error_code error;
  if (fs::is_directory(root_ / kTrash / dir, error)) return absl::OkStatus();
  return WithDetail(absl::NotFoundError(absl::StrFormat("%s is not in the trash", dir)),
                    "not_found", "dir");
}

absl::Status LocalCheckpointDirs::TakeFromTrash(const std::string& dir) {
  std::error_code error;
  fs::rename(root_ / kTrash / dir, root_ / dir, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("%s cannot be moved out of the trash: %s", dir, error.message()));
}

void LocalCheckpointDirs::PutBack(std::string dir) {
  absl::MutexLock lock(&mu_);
  unnamed_.push_back(std::move(dir));
}

absl::StatusOr<std::vector<std::string>> LocalCheckpointDirs::ListTrash() {
  return ListCheckpointDirs(root_ / kTrash);
}

absl::StatusOr<std::string> LocalCheckpointDirs::ReadTextInTrash(const std::string& dir,
                                                                 const std::string& file) {
  return ReadText((fs::path(kTrash) / dir).string(), file);
}

int64_t LocalCheckpointDirs::BytesInTrash(const std::string& dir) {
  return BytesOf(root_ / kTrash / dir);
}

absl::StatusOr<std::string> LocalCheckpointDirs::ReadText(const std::string& dir,
                                                          const std::string& file) {
  const fs::path path = root_ / dir / file;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(path.string() + " cannot be read");
  return std::string{std::istreambuf_iterator<char>(stream), {}};
}

absl::StatusOr<int64_t> LocalCheckpointDirs::SizeOf(const std::string& dir,
                                                    const std::string& file) {
  std::error_code error;
  const auto size = fs::file_size(root_ / dir / file, error);
  if (error) return absl::NotFoundError((root_ / dir / file).string() + " is missing");
  return static_cast<int64_t>(size);
}

bool LocalCheckpointDirs::AreFilesMissing(const CheckpointRow& row) {
  std::error_code error;
  return !fs::exists(root_ / row.dir, error) && !error;
}

absl::Status LocalCheckpointDirs::Copy(const std::string& from, const std::string& to,
                                       const std::string& tinker_path) {
  const absl::Status status = LinkInto(root_ / from, root_ / to, tinker_path);
  std::error_code ignored;
  if (!status.ok()) fs::remove_all(root_ / to, ignored);
  return status;
}

void LocalCheckpointDirs::DoWork(absl::Time now) {
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

void LocalCheckpointDirs::MoveToTrash(const std::vector<std::string>& dirs, absl::Time now) {
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

void LocalCheckpointDirs::DeleteOldTrash(absl::Time now) {
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
