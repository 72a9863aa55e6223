// The files of checkpoints, snapshots and versions: reads, copies, deletions, and the trash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/object_store/checkpoint_objects.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Owns the directories that the core names ("c" and 32 hexadecimal digits); others do not belong to
// the engine. A directory that no row names at the start goes to the trash and is deleted only
// after a while: the database may be a restored one that is older than the files. Thread-safe.
class CheckpointDirs {
 public:
  virtual ~CheckpointDirs() = default;

  // Notes the directories that exist. Call before any request is accepted, so that none of them is
  // made from then on.
  virtual void ListAtStart() = 0;
  // Moves those of ListAtStart that are not in `needed`, which is sorted, to the trash.
  virtual void KeepOnly(const std::vector<std::string>& needed) = 0;
  // A durable row names the directory from now on, until Delete.
  virtual void Keep(const std::string&) {}
  // Deletes a directory that a row named until now.
  virtual void Delete(std::string dir) = 0;
  // Carries out the calls above, and deletes what was in the trash for its time. Called about every
  // second on a thread that may block on the disk, but not on a network.
  virtual void DoWork(absl::Time now) = 0;
  // Makes calls that clients wait for fail soon if they wait for a network.
  virtual void EndCalls() {}
  // Carries out what it can within some seconds. Call once, at the end.
  virtual void Finish(absl::Time now) = 0;

  // The calls below may block on a disk or a network. Returns NotFound if it is not in the trash,
  // and InvalidArgument if `dir` is no such name.
  virtual absl::Status CheckInTrash(const std::string& dir) = 0;
  // Moves a directory out of the trash at once. Fails if an earlier call has done so.
  virtual absl::Status TakeFromTrash(const std::string& dir) = 0;
  // Moves it to the trash again, unless a row names it.
  virtual void PutBack(std::string dir) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ListTrash() = 0;
  virtual absl::StatusOr<std::string> ReadTextInTrash(const std::string& dir,
                                                      const std::string& file) = 0;
  virtual int64_t BytesInTrash(const std::string& dir) = 0;

  // Returns a small file. NotFound: the directory or the file is missing.
  virtual absl::StatusOr<std::string> ReadText(const std::string& dir, const std::string& file) = 0;
  virtual absl::StatusOr<int64_t> SizeOf(const std::string& dir, const std::string& file) = 0;
  // Returns true if the directory of `row` is known to be missing. Cheap enough for a listing.
  virtual bool AreFilesMissing(const CheckpointRow& row) = 0;
  // Makes `to` a copy of `from`, with a file kCopyNameFile that holds `tinker_path`. The manifest
  // still names the source. Durable on success; `to` is removed on failure. NotFound: `from` is
  // missing.
  virtual absl::Status Copy(const std::string& from, const std::string& to,
                            const std::string& tinker_path) = 0;
  // Returns where a directory is, for people.
  virtual std::string AddressOf(const std::string& dir) const = 0;
  // Returns the object store; empty: the data directory.
  virtual CheckpointPlace Place() const = 0;
};

// Returns the directories that rows of the database name, sorted.
using NamedDirs = std::function<absl::StatusOr<std::vector<std::string>>()>;

// Checkpoints that are objects.
struct StoredCheckpoints {
  std::shared_ptr<CheckpointObjects> reads;   // for calls that a client waits for
  std::shared_ptr<CheckpointObjects> work;    // for calls that may take a minute
  std::shared_ptr<CheckpointObjects> copies;  // for copies, which a client waits for
  std::string store_id;                       // of the installation that owns the place
  NamedDirs named_dirs = {};                  // empty: rows name none
  // Called if the place turns out to be another installation's. Nothing may be saved any more, so
  // it should end the process.
  std::function<void(const absl::Status&)> on_refused = {};
};

// Returns NotFound, with the name of one, if the place lacks directories of `named`, which is
// sorted. Models would be lost in a wrong or emptied place, and after a copy that broke off.
absl::Status CheckHasDirs(CheckpointObjects& objects, const std::vector<std::string>& named);

// Makes the place of `objects` that of the installation `store_id` if it is nobody's and has the
// directories that rows name. NotFound: it lacks one. Other errors as `named_dirs` and
// CheckpointObjects::Claim.
absl::Status ClaimPlace(const std::string& store_id, const NamedDirs& named_dirs,
                        CheckpointObjects& objects);

// Returns those below `root`, or those in a store if it has objects.
std::unique_ptr<CheckpointDirs> MakeCheckpointDirs(const std::filesystem::path& root,
                                                   const StoredCheckpoints& stored,
                                                   absl::Duration trash_kept);

// Returns InvalidArgument unless it is a name that the core gives.
absl::Status CheckDirName(const std::string& dir);
bool IsCheckpointDir(const std::string& name);

}  // namespace lathe::engine
