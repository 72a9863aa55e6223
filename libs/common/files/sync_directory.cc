#include "libs/common/files/sync_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lathe {

absl::Status SyncDirectory(const std::filesystem::path& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open " + dir.string());
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot sync " + dir.string());
}

}  // namespace lathe
