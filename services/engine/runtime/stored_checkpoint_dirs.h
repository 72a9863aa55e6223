// The files of checkpoints, snapshots and versions as objects in a store.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/runtime/checkpoint_dirs.h"

namespace lathe::engine {

// A directory in the trash stays where it is, and has a mark. A thread makes the changes, because a
// store may take long to answer. It repeats what fails. What is left at the end of the process is
// found by the next one, as a directory that no row names.
class StoredCheckpointDirs : public CheckpointDirs {
 public:
  StoredCheckpointDirs(StoredCheckpoints stored, absl::Duration trash_kept);

  // Lists nothing if the store does not answer. Directories that no row names then stay until
  // another start.
  void ListAtStart() override;
  void KeepOnly(const std::vector<std::string>& needed) override;
  void Keep(const std::string& dir) override;
  void Delete(std::string dir) override;
  void DoWork(absl::Time) override {}
  void EndCalls() override;
  void Finish(absl::Time now) override;
  absl::Status CheckInTrash(const std::string& dir) override;
  absl::Status TakeFromTrash(const std::string& dir) override;
  void PutBack(std::string dir) override;
  absl::StatusOr<std::vector<std::string>> ListTrash() override;
  absl::StatusOr<std::string> ReadTextInTrash(const std::string& dir,
                                              const std::string& file) override;
  int64_t BytesInTrash(const std::string& dir) override;
  absl::StatusOr<std::string> ReadText(const std::string& dir, const std::string& file) override;
  absl::StatusOr<int64_t> SizeOf(const std::string& dir, const std::string& file) override;
  // Knows directories from a listing that is a minute old at most.
  bool AreFilesMissing(const CheckpointRow& row) override;
  absl::Status Copy(const std::string& from, const std::string& to,
                    const std::string& tinker_path) override;
  std::string AddressOf(const std::string& dir) const override;
  CheckpointPlace Place() const override;

  // Carries out the changes. One that fails comes after the others the next time. Called by the
  // thread, and by tests.
  void WorkOnce(absl::Time now);

 private:
  struct Change {
    // kPurge deletes a directory and its mark, if it is still in the trash.
    enum class Kind { kMark, kUnmark, kDelete, kPurge } kind = Kind::kMark;
    std::string dir;
  };

  absl::Status Make(const Change& change);
  absl::Status Mark(const std::string& dir);
  absl::Status Purge(const std::string& dir);
  // Returns false if the directory is a row's, or is becoming one's. Otherwise it cannot leave the
  // trash until EndTrashing.
  bool BeginTrashing(const std::string& dir);
  void EndTrashing();
  // Returns the error of one that failed. Moves those that are left to be made again.
  absl::Status MakeAll(std::vector<Change> changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_);
  absl::Status ClaimOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_);
  void LookAtTrash(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_);
  void Add(Change::Kind kind, std::string dir);
  bool IsNeeded(const std::string& dir) const;

  const StoredCheckpoints stored_;
  const absl::Duration trash_kept_;
  mutable absl::Mutex mu_;
  std::vector<Change> changes_ ABSL_GUARDED_BY(mu_);
  // Directories that came out of the trash, and that no row names yet. What was decided about them
  // before must not happen.
  std::set<std::string> taken_ ABSL_GUARDED_BY(mu_);
  // Directory that is being marked, or deleted from the trash.
  std::string trashed_now_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> at_start_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> needed_ ABSL_GUARDED_BY(mu_);  // directories that rows name now
  bool knows_needed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> listed_ ABSL_GUARDED_BY(mu_);              // sorted
  absl::Time listed_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // when listed_ was asked for
  absl::Time list_again_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Mutex work_mu_;  // held while WorkOnce runs
  absl::Time trash_looked_at_ ABSL_GUARDED_BY(work_mu_) = absl::InfinitePast();
  bool has_failed_ ABSL_GUARDED_BY(work_mu_) = false;
  bool is_claimed_ ABSL_GUARDED_BY(work_mu_) = false;
  bool was_claimed_ ABSL_GUARDED_BY(work_mu_) = false;  // by this process
  // When a place that lacked directories is looked at again.
  absl::Time next_claim_ ABSL_GUARDED_BY(work_mu_) = absl::InfinitePast();
  std::atomic<bool> is_stopping_ = false;
  std::unique_ptr<PeriodicTask> thread_;
};

}  // namespace lathe::engine
