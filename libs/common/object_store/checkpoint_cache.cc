#include "libs/common/object_store/checkpoint_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/logging/logging.h"
#include "libs/common/object_store/local_file_error.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr char kManifestName[] = "manifest.json";
constexpr char kAttempts[] = "tmp";
constexpr char kLocks[] = "locks";
constexpr int kMaxFinds = 3;
constexpr absl::Duration kLongestWait = absl::Minutes(30);
constexpr absl::Duration kLook = absl::Milliseconds(100);

bool IsSameFile(int fd, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// A lock of all processes of the machine on one directory. Its file exists while it is held or
// waited for.
class DirLock {
 public:
  // Unavailable: another process has held it for too long, or `may_wait` returned false.
  static absl::StatusOr<DirLock> Take(const fs::path& root, const std::string& dir,
                                      const std::function<bool()>& may_wait) {
    const fs::path path = root / kLocks / dir;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return LocalFileError(path.parent_path(), "create", error.value());
    const absl::Time until = SteadyNow() + kLongestWait;
    for (;;) {
      DirLock lock(path);
      if (lock.fd_ < 0) return LocalFileError(path, "create", errno);
      while (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) break;  // a file system without locks
        if (SteadyNow() > until || !may_wait()) {
          return absl::UnavailableError(
              absl::StrCat(path.string(), ": another process is fetching, for too long"));
        }
        absl::SleepFor(kLook);
      }
      // Its last holder may have removed the file meanwhile.
      if (IsSameFile(lock.fd_, path)) return lock;
    }
  }
  DirLock(DirLock&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  ~DirLock() {
    if (fd_ < 0) return;
    if (IsSameFile(fd_, path_) && flock(fd_, LOCK_EX | LOCK_NB) == 0) unlink(path_.c_str());
    close(fd_);
  }

 private:
  explicit DirLock(const fs::path& path)
      : path_(path), fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}

  fs::path path_;
  int fd_;
};

// A locked folder for what is fetched. It is removed unless it gets a name.
class Attempt {
 public:
  explicit Attempt(const fs::path& root) : path_(root / kAttempts / RandomId(16)) {
    fs::create_directories(path_, error_);
    lock_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Sweeps of attempts leave locked folders alone.
    if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
  }
  ~Attempt() {
    std::error_code ignored;
    if (!is_named_) fs::remove_all(path_, ignored);
    if (lock_ >= 0) close(lock_);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  const fs::path& path() const { return path_; }
  absl::Status status() const {
    return error_ ? LocalFileError(path_, "create", error_.value()) : absl::OkStatus();
  }
  absl::Status Name(const fs::path& to) {
    absl::Status synced = SyncDirectory(path_);
    if (!synced.ok()) return absl::UnavailableError(synced.message());
    std::error_code error;
    fs::rename(path_, to, error);
    if (error) return LocalFileError(to, "name", error.value());
    is_named_ = true;
    synced = SyncDirectory(to.parent_path());
    return synced.ok() ? synced : absl::UnavailableError(synced.message());
  }

 private:
  const fs::path path_;
  std::error_code error_;
  int lock_ = -1;
  bool is_named_ = false;
};

int64_t BytesIn(const fs::path& dir) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const auto size = it->file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

CheckpointCache::Pin::Pin(Pin&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

CheckpointCache::Pin& CheckpointCache::Pin::operator=(Pin&& other) noexcept {
  path_ = std::move(other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

bool CheckpointCache::Pin::is_current() const { return IsSameFile(lock_, path_); }

fs::path CheckpointCache::Pin::KeepAcrossExec() {
  fcntl(std::exchange(lock_, -1), F_SETFD, 0);
  return path_;
}

CheckpointCache::Pin::~Pin() {
  if (lock_ >= 0) close(lock_);
}

CheckpointCache::CheckpointCache(std::shared_ptr<CheckpointObjects> objects, fs::path root,
                                 int64_t max_bytes, std::shared_ptr<std::atomic<int64_t>> progress,
                                 std::shared_ptr<CheckpointObjects> uploads)
    : objects_(std::move(objects)),
      uploads_(uploads != nullptr ? std::move(uploads) : objects_),
      root_(std::move(root)),
      max_bytes_(max_bytes),
      progress_(std::move(progress)) {}

bool CheckpointCache::Wait() const {
  ++*progress_;
  return !objects_->is_cancelled();
}

// A copy may be removed between the look and the lock; its folder then has no name any more.
absl::StatusOr<CheckpointCache::Pin> CheckpointCache::Find(const std::string& dir) const {
  const fs::path path = root_ / dir;
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path.string());
  Pin pin(path, fd);
  const bool is_there =
      flock(fd, LOCK_SH) == 0 && pin.is_current() && faccessat(fd, kManifestName, R_OK, 0) == 0;
  if (!is_there) return absl::NotFoundError(path.string());
  futimens(fd, nullptr);  // the time of its last use
  return pin;
}

absl::StatusOr<CheckpointCache::Pin> CheckpointCache::Open(const std::string& dir) {
  for (int i = 0; i < kMaxFinds; ++i) {
    absl::StatusOr<Pin> found = Find(dir);
    if (found.ok()) return found;
    RETURN_IF_ERROR(Fetch(dir));
  }
  absl::StatusOr<Pin> found = Find(dir);
  if (found.ok()) return found;
  return absl::UnavailableError(absl::StrCat(
      (root_ / dir).string(), " was removed while it was fetched; raise storage.cache_mib"));
}

absl::Status CheckpointCache::Fetch(const std::string& dir) {
  std::error_code error;
  fs::create_directories(root_ / kLocks, error);
  if (error) return LocalFileError(root_ / kLocks, "create", error.value());
  ASSIGN_OR_RETURN(const DirLock lock, DirLock::Take(root_, dir, [this] { return Wait(); }));
  if (Find(dir).ok()) return absl::OkStatus();
  return FetchLocked(dir);
}

absl::Status CheckpointCache::FetchLocked(const std::string& dir) {
  Attempt attempt(root_);
  RETURN_IF_ERROR(attempt.status());
  RETURN_IF_ERROR(objects_->Fetch(dir, attempt.path(), [&](int64_t bytes) { Trim(dir, bytes); }));
  // A folder without a manifest is of no use, and in the way.
  RemoveEvenIfPinned(root_ / dir);
  return attempt.Name(root_ / dir);
}

bool CheckpointCache::Remove(const fs::path& path) const {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return true;
  const bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (is_free) RemoveEvenIfPinned(path);
  close(fd);
  return is_free;
}

void CheckpointCache::RemoveEvenIfPinned(const fs::path& path) const {
  std::error_code error;
  const fs::path aside = root_ / kAttempts / RandomId(16);
  fs::create_directories(aside.parent_path(), error);
  fs::rename(path, aside, error);
  if (!error) fs::remove_all(aside, error);
}

absl::Status CheckpointCache::Drop(const Pin& damaged) {
  const std::string dir = damaged.path().filename().string();
  ASSIGN_OR_RETURN(const DirLock lock, DirLock::Take(root_, dir, [this] { return Wait(); }));
  if (!damaged.is_current()) return absl::OkStatus();
  LogWarn("a local copy of a checkpoint is damaged, and dropped", {{"dir", dir}});
  RemoveEvenIfPinned(damaged.path());
  if (!damaged.is_current()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(damaged.path().string(), " is damaged and cannot be removed"));
}

void CheckpointCache::Trim(const std::string& kept, int64_t coming_bytes) {
  struct Copy {
    fs::path path;
    int64_t bytes;
    absl::Time used_at;
  };
  std::vector<Copy> copies;
  int64_t bytes = coming_bytes;
  std::error_code error;
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    struct stat info {};
    const std::string name = it->path().filename().string();
    if (name == kAttempts || name == kLocks) continue;
    if (stat(it->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    const int64_t copy_bytes = BytesIn(it->path());
    bytes += copy_bytes;
    if (name == kept) continue;
    copies.push_back({it->path(), copy_bytes, absl::TimeFromTimespec(info.st_mtim)});
  }
  std::sort(copies.begin(), copies.end(),
            [](const Copy& a, const Copy& b) { return a.used_at < b.used_at; });
  for (const Copy& copy : copies) {
    if (bytes <= max_bytes_) return;
    if (Remove(copy.path)) bytes -= copy.bytes;
  }
}

}  // namespace lathe
