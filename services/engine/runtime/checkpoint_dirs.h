// The directories of checkpoints, snapshots and versions on disk: deletions, and the trash.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe::engine {

// Owns the directories below `root` that the core names ("c" and 32 hexadecimal digits); others do
// not belong to the engine. A directory that no row names at the start is moved to `root`/trash and
// deleted only after a while: the database may be a restored one that is older than the files.
// Thread-safe. Changes are made by DoWork alone, which may block on the disk.
class CheckpointDirs {
 public:
  static constexpr char kTrash[] = "trash";

  CheckpointDirs(std::filesystem::path root, absl::Duration trash_kept)
      : root_(std::move(root)), trash_kept_(trash_kept) {}

  // Notes the directories that exist. Call before any request is accepted, so that none of them is
  // made from then on.
  void ListAtStart();
  // Moves those of ListAtStart that are not in `needed`, which is sorted, to the trash.
  void KeepOnly(const std::vector<std::string>& needed);
  // Deletes a directory that a row named until now.
  void Delete(std::string dir);
  // Returns NotFound if it is not in the trash, and InvalidArgument if `dir` is no such name.
  absl::Status CheckInTrash(const std::string& dir) const;
  // Moves a directory out of the trash at once.
  absl::Status TakeFromTrash(const std::string& dir);
  // Moves it to the trash again.
  void PutBack(std::string dir);
  std::vector<std::string> ListTrash() const;
  std::filesystem::path PathInTrash(const std::string& dir) const { return root_ / kTrash / dir; }

  // Carries out the calls above, and about every hour deletes what has been in the trash for
  // `trash_kept`. An entry's time of modification is when it was moved.
  void DoWork(absl::Time now);

 private:
  void MoveToTrash(const std::vector<std::string>& dirs, absl::Time now);
  void DeleteOldTrash(absl::Time now);

  const std::filesystem::path root_;
  const absl::Duration trash_kept_;
  absl::Time trash_looked_at_ = absl::InfinitePast();  // by DoWork only
  absl::Mutex mu_;
  std::vector<std::string> at_start_ ABSL_GUARDED_BY(mu_);  // emptied by KeepOnly
  std::vector<std::string> unnamed_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> to_delete_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
