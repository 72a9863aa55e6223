// A directory that appears whole or not at all (reliability rules for checkpoints).
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::worker {

// Files are written, each synced by its writer, into <store>/tmp/<uuid>/; Commit syncs that
// directory, renames it and syncs the parent. Without Commit the destructor removes everything. The
// directory is locked as long as somebody works on it.
class AtomicDirectory {
 public:
  static absl::StatusOr<AtomicDirectory> Create(const std::filesystem::path& store);

  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  const std::filesystem::path& path() const { return path_; }

  // `final_dir` lies on the same file system; parents are made. What was there before is replaced:
  // it is a save whose row was never committed, as the engine uses a directory for one save only.
  absl::Status Commit(const std::filesystem::path& final_dir);

 private:
  AtomicDirectory(std::filesystem::path store, std::filesystem::path path);

  std::filesystem::path store_;
  std::filesystem::path path_;  // empty after Commit
  int lock_ = -1;               // the directory, open; not locked where the file system cannot
};

// Removes attempts below <store>/tmp that a crash has left: that nobody has locked and that are
// some seconds old, or a day where there are no locks. Another process may be writing into the same
// store.
absl::Status SweepAttempts(const std::filesystem::path& store, absl::Time now);

}  // namespace lathe::worker
