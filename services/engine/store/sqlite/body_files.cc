#include "services/engine/store/sqlite/body_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

absl::Status FileStatus(int error, const char* what, const std::filesystem::path& path) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat(what, " a request body in '", path.string(), "'"));
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return is_full ? WithDetail(status, "disk_full") : status;
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileStatus(errno, "cannot write", path);
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BodyFiles> BodyFiles::Open(std::filesystem::path dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error) {
    std::filesystem::permissions(dir, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return absl::InternalError(absl::StrCat("cannot make '", dir.string(), "': ", error.message()));
  }
  return BodyFiles(std::move(dir));
}

absl::Status BodyFiles::Write(const std::string& body_id, const std::string& bytes) const {
  const std::filesystem::path path = dir_ / body_id;
  if (const int error = FailPointErrno("engine.body.before_write")) {
    return FileStatus(error, "cannot create", path);
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FileStatus(errno, "cannot create", path);
  absl::Status status = WriteAll(fd, bytes, path);
  if (status.ok() && fdatasync(fd) != 0) status = FileStatus(errno, "cannot sync", path);
  close(fd);
  if (status.ok()) status = SyncDirectory(dir_);
  if (!status.ok()) Remove(body_id);
  FailPoint("engine.body.written");
  return status;
}

absl::StatusOr<std::string> BodyFiles::Read(const std::string& body_id) const {
  const std::filesystem::path path = dir_ / body_id;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) return absl::NotFoundError(absl::StrCat("no body '", body_id, "'"));
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file || !bytes) {
    // Too many files may be open, or the disk may fail for a moment: a later read may succeed.
    return absl::UnavailableError(
        absl::StrCat("cannot read '", path.string(), "': ", std::strerror(errno)));
  }
  return std::move(bytes).str();
}

void BodyFiles::Remove(const std::string& body_id) const {
  std::error_code ignored;
  std::filesystem::remove(dir_ / body_id, ignored);
}

void BodyFiles::RemoveAllBut(const std::set<std::string>& live) const {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, ignored)) {
    if (!live.contains(entry.path().filename().string())) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

}  // namespace lathe::engine
