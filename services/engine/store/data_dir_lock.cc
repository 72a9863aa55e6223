#include "services/engine/store/data_dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace lathe::engine {
namespace {

std::string ReadHolder(int fd) {
  std::array<char, 32> text{};
  const ssize_t size = pread(fd, text.data(), text.size() - 1, 0);
  if (size <= 0) return "unknown";
  const std::string_view holder(text.data(), size);
  return std::string(holder.substr(0, holder.find('\n')));
}

}  // namespace

absl::StatusOr<DataDirLock> DataDirLock::Take(const std::filesystem::path& dir,
                                              absl::Duration patience) {
  std::error_code error;
  if (std::filesystem::create_directories(dir, error)) {
    std::filesystem::permissions(dir, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrFormat("directory '%s' cannot be made: %s", dir.string(), error.message()));
  }
  const std::filesystem::path path = dir / "engine.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path.string()));
  DataDirLock lock(fd);
  constexpr absl::Duration kPause = absl::Milliseconds(50);
  for (absl::Duration waited; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += kPause) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path.string()));
    }
    if (waited >= patience) {
      return absl::FailedPreconditionError(
          absl::StrFormat("directory '%s' is in use by process %s", dir.string(), ReadHolder(fd)));
    }
    absl::SleepFor(kPause);
  }
  const std::string holder = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, holder.data(), holder.size(), 0) < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path.string()));
  }
  return lock;
}

DataDirLock::DataDirLock(DataDirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DataDirLock& DataDirLock::operator=(DataDirLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

DataDirLock::~DataDirLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace lathe::engine
