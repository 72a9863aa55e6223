// One process at a time works on a data directory.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"

namespace lathe::engine {

// Holds an exclusive lock on DATA_DIR/engine.lock until destroyed or the process ends.
class DataDirLock {
 public:
  // Creates the directory (0700) when it is missing. FailedPrecondition names the process that
  // holds the lock.
  static absl::StatusOr<DataDirLock> Take(const std::filesystem::path& data_dir);

  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&& other) noexcept;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lathe::engine
