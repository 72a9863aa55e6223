#include "services/engine/backup/pins.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
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

// Returns OK if the digest is that of the manifest in `dir`.
absl::Status CheckManifest(const fs::path& dir, const std::string& sha256) {
  ASSIGN_OR_RETURN(const BackupFile manifest, DigestFile(dir, kManifest));
  if (sha256.empty() || manifest.sha256 == sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(dir.string(), " has another manifest"));
}

absl::Status LinkFiles(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::directory_iterator it(from, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", from.string()));
  RETURN_IF_ERROR(MakeDir(to));
  for (const fs::directory_iterator end; it != end; it.increment(error)) {
    if (!it->is_regular_file(error) || it->is_symlink(error)) continue;
    RETURN_IF_ERROR(LinkFile(it->path(), to / it->path().filename()));
  }
  return absl::OkStatus();
}

bool IsMissing(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status);
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
      lock_(std::exchange(other.lock_, -1)) {}

Pins::~Pins() {
  if (lock_ < 0) return;
  std::error_code error;
  if (!root_.empty()) fs::remove_all(root_, error);
  close(lock_);
}

absl::StatusOr<std::vector<std::string>> Pins::Link(const NeededFiles& needed) {
  std::vector<std::string> missing;
  for (const NeededDir& dir : needed.dirs) {
    const absl::Status status = LinkDir(dir);
    if (!status.ok() && !IsMissing(status)) return status;
    if (!status.ok() && dir.must_exist) missing.push_back("checkpoints/" + dir.dir);
  }
  for (const std::string& body_id : needed.bodies) {
    const absl::Status status = LinkBody(body_id);
    if (!status.ok() && !IsMissing(status)) return status;
    if (!status.ok()) missing.push_back("bodies/" + body_id);
  }
  RemoveOthers(needed);
  return missing;
}

absl::Status Pins::LinkDir(const NeededDir& needed) const {
  const fs::path to = root_ / "checkpoints" / needed.dir;
  std::error_code error;
  if (fs::exists(to, error) && CheckManifest(to, needed.manifest_sha256).ok()) {
    return absl::OkStatus();
  }
  fs::remove_all(to, error);
  absl::Status status = LinkFiles(data_dir_ / "checkpoints" / needed.dir, to);
  if (status.ok()) status = CheckManifest(to, needed.manifest_sha256);
  // A directory without all its files is none. One with another manifest stays for the report.
  if (!status.ok() && !absl::IsDataLoss(status)) fs::remove_all(to, error);
  return status;
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
