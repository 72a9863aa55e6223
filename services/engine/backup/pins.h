// Hard links that keep the files of a backup while it is made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/backup/backup_files.h"

namespace lathe::engine {

// Links in DATA_DIR/checkpoints/backup. The engine deletes and replaces files by their names, so
// linked contents stay. A backup that was killed leaves its links; the next one removes them.
class Pins {
 public:
  // Returns FailedPrecondition if another backup of this data directory is being made.
  static absl::StatusOr<Pins> Take(const std::filesystem::path& data_dir);
  Pins(Pins&& other) noexcept;
  Pins& operator=(Pins&&) = delete;
  ~Pins();

  // Links all complete directories and all bodies that are there, as far as it can. What the next
  // view names is mostly linked then, however long the view takes. Fails if checkpoints or bodies
  // cannot be listed: then all of their files would look as if they were lost.
  absl::Status LinkPresent() const;

  // Links what is not linked yet, and removes links to what is not needed. Returns the paths, such
  // as checkpoints/DIR, that must exist and do not, that the disk cannot read, or that differ from
  // their manifest. Returns PermissionDenied if this process may not read one.
  absl::StatusOr<std::vector<std::string>> Link(const NeededFiles& needed);

  // Paths below root() of files that the last Link found whole.
  const std::vector<std::string>& files() const { return files_; }

  // Folder with the linked files: checkpoints/DIR/FILE and bodies/ID.
  const std::filesystem::path& root() const { return root_; }

 private:
  Pins(const std::filesystem::path& data_dir, int lock);

  // Both return the paths that are not as needed.
  absl::StatusOr<std::vector<std::string>> LinkDir(const NeededDir& needed);
  absl::StatusOr<std::vector<std::string>> CheckDir(const NeededDir& needed);
  absl::Status LinkBody(const std::string& body_id) const;
  void RemoveOthers(const NeededFiles& needed) const;

  std::filesystem::path data_dir_;
  std::filesystem::path root_;
  std::vector<std::string> files_;
  int lock_ = -1;
};

}  // namespace lathe::engine
