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
#include "libs/common/files/sync_directory.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr char kManifestName[] = "manifest.json";
constexpr char kAttempts[] = "tmp";
constexpr char kLocks[] = "locks";
constexpr size_t kNumLocks = 64;
constexpr int kMaxFinds = 3;

// A lock of all processes of the machine. Blocks.
class FetchLock {
 public:
  explicit FetchLock(const fs::path& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FetchLock() {
    if (fd_ >= 0) close(fd_);
  }
  FetchLock(const FetchLock&) = delete;
  FetchLock& operator=(const FetchLock&) = delete;

 private:
  const int fd_;
};

// A locked folder for what is fetched. It is removed unless it gets a name.
class Attempt {
 public:
  explicit Attempt(const fs::path& root) : path_(root / kAttempts / RandomId(16)) {
    std::error_code error;
    fs::create_directories(path_, error);
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
  absl::Status Name(const fs::path& to) {
    RETURN_IF_ERROR(SyncDirectory(path_));
    std::error_code error;
    fs::rename(path_, to, error);
    is_named_ = !error;
    return error ? absl::ErrnoToStatus(error.value(), to.string())
                 : SyncDirectory(to.parent_path());
  }

 private:
  const fs::path path_;
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

fs::path CheckpointCache::Pin::KeepAcrossExec() {
  fcntl(std::exchange(lock_, -1), F_SETFD, 0);
  return path_;
}

CheckpointCache::Pin::~Pin() {
  if (lock_ >= 0) close(lock_);
}

CheckpointCache::CheckpointCache(std::shared_ptr<CheckpointObjects> objects, fs::path root,
                                 int64_t max_bytes)
    : objects_(std::move(objects)), root_(std::move(root)), max_bytes_(max_bytes) {}

// A copy may be removed between the look and the lock; its folder then has no name any more.
absl::StatusOr<CheckpointCache::Pin> CheckpointCache::Find(const std::string& dir) const {
  const fs::path path = root_ / dir;
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path.string());
  Pin pin(path, fd);
  struct stat locked {};
  struct stat named {};
  const bool is_there = flock(fd, LOCK_SH) == 0 && fstat(fd, &locked) == 0 &&
                        stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
                        faccessat(fd, kManifestName, R_OK, 0) == 0;
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
  const size_t number = std::hash<std::string>()(dir) % kNumLocks;
  const FetchLock lock(root_ / kLocks / absl::StrCat(number));
  if (Find(dir).ok()) return absl::OkStatus();
  Attempt attempt(root_);
  RETURN_IF_ERROR(objects_->Fetch(dir, attempt.path()));
  // A folder without a manifest is of no use, and in the way.
  Remove(root_ / dir);
  RETURN_IF_ERROR(attempt.Name(root_ / dir));
  Trim(dir);
  return absl::OkStatus();
}

bool CheckpointCache::Remove(const fs::path& path) const {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return true;
  const bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
  std::error_code error;
  if (is_free) {
    const fs::path aside = root_ / kAttempts / RandomId(16);
    fs::create_directories(aside.parent_path(), error);
    fs::rename(path, aside, error);
    if (!error) fs::remove_all(aside, error);
  }
  close(fd);
  return is_free;
}

void CheckpointCache::Drop(const std::string& dir) {
  LogWarn("a local copy of a checkpoint is dropped", {{"dir", dir}});
  Remove(root_ / dir);
}

void CheckpointCache::Trim(const std::string& kept) {
  struct Copy {
    fs::path path;
    int64_t bytes;
    absl::Time used_at;
  };
  std::vector<Copy> copies;
  int64_t bytes = 0;
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
