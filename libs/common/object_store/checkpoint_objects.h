// Checkpoints as objects: their names, the order of publication, and who owns the place.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/object_store/object_store.h"

namespace lathe {

// The files of directory DIR are the objects checkpoints/DIR/FILE. manifest.json is written last,
// and never replaced: a directory without it is no checkpoint. The object LATHE_STORE holds the id
// of the installation that owns the place. The object trash/DIR marks a directory that no row of
// the database named. Thread-safe; all calls block.
class CheckpointObjects {
 public:
  using MakeRoom = std::function<void(int64_t bytes)>;

  static constexpr char kOfAnother[] = "store_of_another";

  // `same_place` is another client of the place. The two share what they know of its owner.
  explicit CheckpointObjects(std::shared_ptr<ObjectStore> objects,
                             const CheckpointObjects* same_place = nullptr);

  // Makes the place that of the installation `store_id` if it is nobody's. FailedPrecondition: it
  // is another's (code kOfAnother), or none. Unavailable: it may work later; that includes a store
  // that takes no writes now.
  absl::Status Claim(const std::string& store_id);
  // Returns OK if the place is that installation's. Writes nothing. NotFound: it is nobody's. Other
  // errors as Claim.
  absl::Status CheckOwner(const std::string& store_id);

  // Returns the id of the installation that owns the place. NotFound: none does yet.
  absl::StatusOr<std::string> ReadOwner();

  // Publishes a local directory with its manifest.json, unless the place has another owner now.
  // Asks the store afterwards whether it has all of it. OK if the same was published before. Errors
  // are those of a server, never of a user's request: ResourceExhausted, Unavailable, Internal.
  absl::Status Publish(const std::string& dir, const std::filesystem::path& folder);

  // Writes the files of `dir` to the existing folder `into`, syncs them and verifies them against
  // the manifest. NotFound: there is no such checkpoint. DataLoss: the store has other bytes or
  // lacks a file. It says either only after it has looked twice. ResourceExhausted: this machine's
  // disk is full. Unavailable: any other failure, so that a caller does not take it for damage;
  // also a place that no engine has claimed.
  // `make_room` is told the bytes of all files before they are written.
  absl::Status Fetch(const std::string& dir, const std::filesystem::path& into,
                     const MakeRoom& make_room = {});

  absl::StatusOr<std::string> ReadText(const std::string& dir, const std::string& file);
  absl::StatusOr<ObjectInfo> Describe(const std::string& dir, const std::string& file);
  absl::StatusOr<std::string> Read(const std::string& dir, const std::string& file, int64_t offset,
                                   int64_t size);
  // Returns the bytes of all its objects.
  absl::StatusOr<int64_t> BytesOf(const std::string& dir);

  // Makes `to` a copy of `from`, inside the store, with the file kCopyNameFile. NotFound.
  absl::Status Copy(const std::string& from, const std::string& to, const std::string& tinker_path);
  // Removes all its objects, the manifest first.
  absl::Status Delete(const std::string& dir);
  // Returns the names of all directories, whole or not.
  absl::StatusOr<std::vector<std::string>> ListDirs();

  absl::Status MarkAsTrash(const std::string& dir);
  absl::Status UnmarkAsTrash(const std::string& dir);
  absl::StatusOr<bool> IsTrash(const std::string& dir);
  struct Trashed {
    std::string dir;
    absl::Time since;
  };
  absl::StatusOr<std::vector<Trashed>> ListTrash();

  // Ends uploads of checkpoints that began before `before` and never ended.
  absl::StatusOr<int64_t> AbortUploads(absl::Time before);

  // As ObjectStore::Cancel.
  void Cancel() {
    is_cancelled_ = true;
    objects_->Cancel();
  }
  bool is_cancelled() const { return is_cancelled_; }

  // Returns "s3://bucket/prefix".
  std::string Address() const;
  // Returns "s3://bucket/prefix/checkpoints/dir".
  std::string AddressOf(const std::string& dir) const;

 private:
  struct Ownership {
    std::atomic<bool> is_checked = false;
    absl::Mutex mu;
    // The first owner that a read of the marker returned. It is empty before that.
    std::string owner ABSL_GUARDED_BY(mu);
  };

  // Checks that the place has an owner, and the same one as before.
  absl::Status CheckClaimed();
  absl::Status PublishNow(const std::string& dir, const std::filesystem::path& folder);
  absl::Status FetchNow(const std::string& dir, const std::filesystem::path& into,
                        const MakeRoom& make_room);

  const std::shared_ptr<ObjectStore> objects_;
  const std::shared_ptr<Ownership> ownership_;
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace lathe
