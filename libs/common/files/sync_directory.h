// Makes changes of a directory durable.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/status/status.h"

namespace lathe {

// Makes creations, links and renames in `dir` durable. Errors have the status of errno and the
// path.
inline absl::Status SyncDirectory(const std::filesystem::path& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open " + dir.string());
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot sync " + dir.string());
}

}  // namespace lathe
