// The files of checkpoints, snapshots and versions in directories of this machine.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/engine/runtime/checkpoint_dirs.h"

namespace lathe::engine {

// Directories below `root`. A copy has hard links to the source's files, which never change. An
// entry of the trash is in `root`/trash; its time of modification is when it was moved. Changes are
// made by DoWork alone, apart from TakeFromTrash and Copy.
class LocalCheckpointDirs : public CheckpointDirs {
 public:
  static constexpr char kTrash[] = "trash";

  LocalCheckpointDirs(std::filesystem::path root, absl::Duration trash_kept)
      : root_(std::move(root)), trash_kept_(trash_kept) {}

  void ListAtStart() override;
  void KeepOnly(const std::vector<std::string>& needed) override;
  void Delete(std::string dir) override;
  void DoWork(absl::Time now) override;
  void Finish(absl::Time now) override { DoWork(now); }
  absl::Status CheckInTrash(const std::string& dir) override;
  absl::Status TakeFromTrash(const std::string& dir) override;
  void PutBack(std::string dir) override;
  absl::StatusOr<std::vector<std::string>> ListTrash() override;
  absl::StatusOr<std::string> ReadTextInTrash(const std::string& dir,
                                              const std::string& file) override;
  int64_t BytesInTrash(const std::string& dir) override;
  absl::StatusOr<std::string> ReadText(const std::string& dir, const std::string& file) override;
  absl::StatusOr<int64_t> SizeOf(const std::string& dir, const std::string& file) override;
  bool AreFilesMissing(const CheckpointRow& row) override;
  absl::Status Copy(const std::string& from, const std::string& to,
                    const std::string& tinker_path) override;
  std::string AddressOf(const std::string& dir) const override { return (root_ / dir).string(); }
  CheckpointPlace Place() const override { return {}; }

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
