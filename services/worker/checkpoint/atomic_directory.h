// A directory that appears whole or not at all.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::worker {

// Writers create files in <store>/tmp/<uuid>/ and sync each of them. Commit syncs that directory,
// renames it and syncs the parent. Without Commit the destructor removes everything. The directory
// is locked while the object lives.
class AtomicDirectory {
 public:
  static absl::StatusOr<AtomicDirectory> Create(const std::filesystem::path& store);

  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  const std::filesystem::path& path() const { return path_; }

  // Moves the directory to `final_dir`, on the same file system, and creates its parents. Replaces
  // an existing directory: that is a save whose row was never committed, because the engine uses a
  // directory for one save only. The name has one of the two directories at any time, also after a
  // crash, if the file system can exchange names (renameat2).
  absl::Status Commit(const std::filesystem::path& final_dir);

 private:
  explicit AtomicDirectory(std::filesystem::path path);

  std::filesystem::path path_;  // empty after Commit
  int lock_ = -1;               // the open directory; not locked if the file system has no locks
};

// Removes directories in <store>/tmp that a crash has left. They must be unlocked and some seconds
// old, or a day old if the file system has no locks. Another process may be writing to the same
// store.
absl::Status SweepAttempts(const std::filesystem::path& store, absl::Time now);

}  // namespace lathe::worker
