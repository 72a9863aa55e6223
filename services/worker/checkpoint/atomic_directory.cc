#include "services/worker/checkpoint/atomic_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/durable_file.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

// Longest time between the creation of a directory and its lock.
constexpr absl::Duration kLockedWithin = absl::Seconds(10);
// Longest time that saving one checkpoint may take.
constexpr absl::Duration kFinishedWithin = absl::Hours(24);

absl::Status FromError(const fs::path& path, const char* operation, const std::error_code& error) {
  if (!error) return absl::OkStatus();
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, error.message());
  const bool is_full = error == std::errc::no_space_on_device || error.value() == EDQUOT;
  return is_full ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

// Returns the error that a fail point injects for `path`.
absl::Status Passed(std::string_view fail_point, const fs::path& path) {
  const int error = FailPointErrno(fail_point);
  return FromError(path, "rename", std::error_code(error, std::generic_category()));
}

std::string RandomName() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

int OpenDirectory(const fs::path& dir) {
  return open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Returns an age above which `dir` is abandoned: no live process has used it since.
absl::Duration WorkedOnWithin(const fs::path& dir) {
  const int fd = OpenDirectory(dir);
  if (fd < 0) return kFinishedWithin;
  const bool is_locked_now = flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool is_locked_by_other = !is_locked_now && errno == EWOULDBLOCK;
  close(fd);
  if (is_locked_by_other) return absl::InfiniteDuration();
  return is_locked_now ? kLockedWithin : kFinishedWithin;
}

// Creates `dir` and all missing parents, and syncs each one's parent.
absl::Status MakeDirectories(const fs::path& dir) {
  if (fs::is_directory(dir)) return absl::OkStatus();
  if (dir.has_parent_path()) RETURN_IF_ERROR(MakeDirectories(dir.parent_path()));
  std::error_code error;
  fs::create_directory(dir, error);
  RETURN_IF_ERROR(FromError(dir, "mkdir", error));
  return SyncDirectory(dir.parent_path());
}

// Exchanges the names of two directories in one step.
std::error_code Exchange(const fs::path& a, const fs::path& b) {
  const int failed = renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  return {failed == 0 ? 0 : errno, std::generic_category()};
}

// Gives `from` the name of the directory `to`. Returns the new name of that directory, which is in
// the same folder as `from`.
absl::StatusOr<fs::path> Replace(const fs::path& from, const fs::path& to) {
  std::error_code error = Exchange(from, to);
  if (!error) return from;
  const bool is_unknown = error == std::errc::invalid_argument ||
                          error == std::errc::function_not_supported ||
                          error == std::errc::operation_not_supported;
  if (!is_unknown) return FromError(to, "exchange", error);
  // The file system or the kernel cannot exchange names. A crash between these two renames leaves
  // no directory at `to`.
  fs::path replaced = from.parent_path() / RandomName();
  fs::rename(to, replaced, error);
  RETURN_IF_ERROR(FromError(to, "rename", error));
  fs::rename(from, to, error);
  RETURN_IF_ERROR(FromError(to, "rename", error));
  return replaced;
}

}  // namespace

absl::StatusOr<AtomicDirectory> AtomicDirectory::Create(const fs::path& store) {
  const fs::path path = store / "tmp" / RandomName();
  RETURN_IF_ERROR(MakeDirectories(path));
  return AtomicDirectory(path);
}

AtomicDirectory::AtomicDirectory(fs::path path)
    : path_(std::move(path)), lock_(OpenDirectory(path_)) {
  if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : path_(std::exchange(other.path_, fs::path())), lock_(std::exchange(other.lock_, -1)) {}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;  // SweepAttempts removes what remains
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

absl::Status AtomicDirectory::Commit(const fs::path& final_dir) {
  RETURN_IF_ERROR(Passed("worker.save.before_rename", final_dir));
  RETURN_IF_ERROR(SyncDirectory(path_));
  RETURN_IF_ERROR(MakeDirectories(final_dir.parent_path()));
  std::error_code error;
  fs::path replaced;
  if (fs::exists(final_dir)) {
    ASSIGN_OR_RETURN(replaced, Replace(path_, final_dir));
  } else {
    fs::rename(path_, final_dir, error);
    RETURN_IF_ERROR(FromError(final_dir, "rename", error));
  }
  path_.clear();
  RETURN_IF_ERROR(Passed("worker.save.renamed", final_dir));
  RETURN_IF_ERROR(SyncDirectory(final_dir.parent_path()));
  if (!replaced.empty()) fs::remove_all(replaced, error);
  return absl::OkStatus();
}

absl::Status SweepAttempts(const fs::path& store, absl::Time now) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(store / "tmp", error)) {
    struct stat info {};
    if (stat(entry.path().c_str(), &info) != 0) continue;
    if (now - absl::TimeFromTimespec(info.st_mtim) < WorkedOnWithin(entry.path())) continue;
    std::error_code remove_error;
    fs::remove_all(entry.path(), remove_error);
    RETURN_IF_ERROR(FromError(entry.path(), "remove", remove_error));
  }
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  return FromError(store, "list", error);
}

}  // namespace lathe::worker
