// An exclusive lock that lets one engine process at a time work on a directory. Main locks the data
// directory, or with a database that engines share the directory of the sockets.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::engine {

// Holds an exclusive file lock on DIR/engine.lock until it is destroyed or the process ends.
class DataDirLock {
 public:
  // Takes the lock on `dir`, which is created (mode 0700) when it is missing. Returns
  // FailedPrecondition, naming the other process, when another process still holds the lock after
  // `patience`.
  static absl::StatusOr<DataDirLock> Take(const std::filesystem::path& dir,
                                          absl::Duration patience = absl::ZeroDuration());

  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&& other) noexcept;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lathe::engine
