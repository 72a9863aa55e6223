// One process at a time works on a directory: that of the data or, where a database is shared, that
// of the sockets.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"

namespace lathe::engine {

// Holds an exclusive lock on DIR/engine.lock until destroyed or the process ends.
class DataDirLock {
 public:
  // Creates the directory (0700) when it is missing. FailedPrecondition names the process that
  // holds the lock.
  static absl::StatusOr<DataDirLock> Take(const std::filesystem::path& dir);

  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&& other) noexcept;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lathe::engine
