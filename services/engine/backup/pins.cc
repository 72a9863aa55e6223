#include "services/engine/backup/pins.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "services/engine/backup/files.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "manifest.json";

void RemoveUnlessIn(const std::set<std::string>& names, const fs::path& dir) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!names.contains(it->path().filename().string())) fs::remove_all(it->path(), ignored);
  }
}

bool IsLost(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status);
}

// Links the files that are there. Returns NotFound if one went away meanwhile, and DataLoss if the
// disk cannot read one.
absl::Status LinkFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  absl::Status lost;
  fs::directory_iterator it(from, error);
  if (!error) RETURN_IF_ERROR(MakeDir(to));
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code not_regular;
    if (it->is_symlink(not_regular) || !it->is_regular_file(not_regular)) continue;
    const absl::Status status = LinkFile(it->path(), to / it->path().filename());
    if (!status.ok() && !IsLost(status)) return status;
    lost.Update(status);
  }
  if (error) return ListStatus(error, from);
  return lost;
}

// Links all files of a directory, or none. Unlike LinkFiles, this function never copies a file.
void TryToLinkFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directory(to, error);
  fs::directory_iterator it(from, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code not_regular;
    if (it->is_symlink(not_regular) || !it->is_regular_file(not_regular)) continue;
    fs::create_hard_link(it->path(), to / it->path().filename(), error);
    if (error) break;
  }
  std::error_code ignored;
  if (error) fs::remove_all(to, ignored);
}

}  // namespace

absl::StatusOr<Pins> Pins::Take(const fs::path& data_dir) {
  const fs::path path = data_dir / "backup.lock";
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path.string()));
  Pins pins(data_dir, lock);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    pins.root_.clear();
    return absl::FailedPreconditionError(
        absl::StrCat("another backup of ", data_dir.string(), " is being made"));
  }
  std::error_code error;
  fs::remove_all(pins.root_, error);
  RETURN_IF_ERROR(MakeDir(pins.root_ / "checkpoints"));
  RETURN_IF_ERROR(MakeDir(pins.root_ / "bodies"));
  return pins;
}

Pins::Pins(const fs::path& data_dir, int lock)
    : data_dir_(data_dir), root_(data_dir / "checkpoints" / "backup"), lock_(lock) {}

Pins::Pins(Pins&& other) noexcept
    : data_dir_(std::move(other.data_dir_)),
      root_(std::move(other.root_)),
      files_(std::move(other.files_)),
      lock_(std::exchange(other.lock_, -1)) {}

Pins::~Pins() {
  if (lock_ < 0) return;
  std::error_code error;
  if (!root_.empty()) fs::remove_all(root_, error);
  close(lock_);
}

absl::Status Pins::LinkPresent() const {
  std::error_code error;
  std::error_code ignored;
  const fs::path checkpoints = data_dir_ / "checkpoints";
  fs::directory_iterator dir(checkpoints, error);
  for (const fs::directory_iterator end; !error && dir != end; dir.increment(error)) {
    const fs::path to = root_ / "checkpoints" / dir->path().filename();
    // The manifest is written last.
    if (fs::exists(to, ignored) || !fs::exists(dir->path() / kManifest, ignored)) continue;
    TryToLinkFiles(dir->path(), to);
  }
  RETURN_IF_ERROR(ListStatus(error, checkpoints));
  fs::directory_iterator body(data_dir_ / "bodies", error);
  for (const fs::directory_iterator end; !error && body != end; body.increment(error)) {
    fs::create_hard_link(body->path(), root_ / "bodies" / body->path().filename(), ignored);
  }
  // With Postgres there may be no such folder.
  const absl::Status status = ListStatus(error, data_dir_ / "bodies");
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<std::string>> Pins::Link(const NeededFiles& needed) {
  files_.clear();
  std::vector<std::string> missing;
  for (const NeededDir& dir : needed.dirs) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lost, LinkDir(dir));
    if (dir.must_exist) missing.insert(missing.end(), lost.begin(), lost.end());
  }
  for (const std::string& body_id : needed.bodies) {
    const absl::Status status = LinkBody(body_id);
    if (!status.ok() && !IsLost(status)) return status;
    (status.ok() ? files_ : missing).push_back("bodies/" + body_id);
  }
  RemoveOthers(needed);
  return missing;
}

absl::StatusOr<std::vector<std::string>> Pins::LinkDir(const NeededDir& needed) {
  const fs::path to = root_ / "checkpoints" / needed.dir;
  const size_t num_files = files_.size();
  ASSIGN_OR_RETURN(std::vector<std::string> lost, CheckDir(needed));
  if (lost.empty()) return lost;
  files_.resize(num_files);
  std::error_code error;
  fs::remove_all(to, error);
  const absl::Status status = LinkFiles(data_dir_ / "checkpoints" / needed.dir, to);
  if (!status.ok() && !IsLost(status)) return status;
  ASSIGN_OR_RETURN(lost, CheckDir(needed));
  // The directory may be going away, and a file that no manifest lists with it.
  if (lost.empty() && !status.ok()) lost.push_back("checkpoints/" + needed.dir);
  // A directory without its manifest is none. One that is damaged stays for the report.
  if (!fs::exists(to / kManifest, error)) fs::remove_all(to, error);
  return lost;
}

absl::StatusOr<std::vector<std::string>> Pins::CheckDir(const NeededDir& needed) {
  const std::string dir = "checkpoints/" + needed.dir;
  const absl::StatusOr<BackupFile> manifest = DigestFile(root_ / dir, kManifest);
  if (!manifest.ok() && !IsLost(manifest.status())) return manifest.status();
  const bool is_other = manifest.ok() && !needed.manifest_sha256.empty() &&
                        manifest->sha256 != needed.manifest_sha256;
  if (!manifest.ok() || is_other) return std::vector<std::string>{dir};
  files_.push_back(absl::StrCat(dir, "/", kManifest));
  std::vector<std::string> lost;
  for (const BackupFile& file : FilesOfCheckpoint(root_ / dir / kManifest)) {
    const std::string path = absl::StrCat(dir, "/", file.path);
    std::error_code error;
    const bool is_whole =
        fs::file_size(root_ / path, error) == static_cast<uintmax_t>(file.size_bytes) && !error;
    (is_whole ? files_ : lost).push_back(path);
  }
  return lost;
}

absl::Status Pins::LinkBody(const std::string& body_id) const {
  const fs::path to = root_ / "bodies" / body_id;
  std::error_code error;
  if (fs::exists(to, error)) return absl::OkStatus();
  return LinkFile(data_dir_ / "bodies" / body_id, to);
}

void Pins::RemoveOthers(const NeededFiles& needed) const {
  std::set<std::string> dirs;
  for (const NeededDir& dir : needed.dirs) dirs.insert(dir.dir);
  RemoveUnlessIn(dirs, root_ / "checkpoints");
  RemoveUnlessIn({needed.bodies.begin(), needed.bodies.end()}, root_ / "bodies");
}

}  // namespace lathe::engine
