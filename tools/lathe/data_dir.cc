#include "tools/lathe/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSocketPathBytes = 100;
constexpr char kLongestSocket[] = "engine.sock";
constexpr std::size_t kSecretBytes = 32;

absl::Status CannotCreate(const fs::path& path, int error) {
  const bool is_refused = error == EACCES || error == EPERM || error == EROFS;
  const std::string message =
      absl::StrCat("cannot create ", path.string(), ": ", std::strerror(error));
  return is_refused ? WithDetail(absl::PermissionDeniedError(message), "permission")
                    : WithDetail(absl::UnavailableError(message), "cannot_create");
}

fs::path SocketDir(const fs::path& data_dir, const fs::path& run_dir) {
  if (!run_dir.empty()) return fs::weakly_canonical(fs::absolute(run_dir));
  const fs::path run = data_dir / "run";
  if ((run / kLongestSocket).string().size() <= kMaxSocketPathBytes) return run;
  return absl::StrCat("/tmp/lathe-", getuid(), "-", Sha256Hex(data_dir.string()).substr(0, 16));
}

// Fails unless `path` is a folder that only this user can access. Another user may have created it
// under /tmp.
absl::Status CheckOwner(const fs::path& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return CannotCreate(path, errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == getuid() && (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return WithDetail(absl::PermissionDeniedError(absl::StrCat(
                        path.string(), " is not a folder of this user alone (mode 0700)")),
                    "permission");
}

absl::Status MakePrivateFolder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return CannotCreate(path, errno);
  if (!fs::is_directory(path, error)) return CannotCreate(path, ENOTDIR);
  return absl::OkStatus();
}

}  // namespace

DataDir::DataDir(const fs::path& dir, const fs::path& run_dir)
    : path_(fs::weakly_canonical(fs::absolute(dir))), socket_dir_(SocketDir(path_, run_dir)) {}

std::string DataDir::SocketAddress(const std::string& listener) const {
  return absl::StrCat("unix:", (socket_dir_ / listener).string(), ".sock");
}

absl::Status DataDir::Create() const {
  for (const fs::path& folder :
       {path_, path_ / "bodies", path_ / "checkpoints", path_ / "snapshots", logs(), run()}) {
    RETURN_IF_ERROR(MakePrivateFolder(folder));
  }
  if (has_own_socket_dir()) {
    RETURN_IF_ERROR(MakePrivateFolder(socket_dir_));
    RETURN_IF_ERROR(CheckOwner(socket_dir_));
  }
  return CreateSecret();
}

absl::Status DataDir::CreateSecret() const {
  const fs::path secret = socket_dir_ / "secret";
  const fs::path kept = run() / "secret";
  std::string text = RandomId(kSecretBytes);
  for (const fs::path& path : {kept, secret}) {
    if (const absl::StatusOr<std::string> found = ReadTextFile(path);
        found.ok() && !found->empty()) {
      text = *found;
    }
  }
  for (const fs::path& path : {kept, secret}) {
    if (ReadTextFile(path).value_or("") == text) continue;
    RETURN_IF_ERROR(WriteFileAtomically(path, text + "\n", 0600));
  }
  return absl::OkStatus();
}

std::string DefaultDataDir() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != '\0') {
    return absl::StrCat(data, "/lathe");
  }
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.local/share/lathe");
}

absl::StatusOr<DataDirLock> DataDirLock::Take(const DataDir& dir) {
  const fs::path path = dir.run() / "lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return CannotCreate(path, errno);
  DataDirLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const auto holder = ReadTextFile(path);
    return WithDetail(absl::AlreadyExistsError(absl::StrCat(
                          dir.path().string(), " is in use by process ", holder.value_or("?"),
                          "; choose another with --data-dir, or stop that one")),
                      "data_dir_in_use", "data_dir");
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || write(fd, pid.data(), pid.size()) < 0) {
    return CannotCreate(path, errno);
  }
  return lock;
}

DataDirLock::DataDirLock(DataDirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DataDirLock::~DataDirLock() {
  if (fd_ >= 0) close(fd_);
}

absl::Status WriteFileAtomically(const fs::path& path, const std::string& text, mode_t mode) {
  const fs::path aside = absl::StrCat(path.string(), ".new");
  unlink(aside.c_str());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return CannotCreate(aside, errno);
  const bool is_written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!is_written) return CannotCreate(aside, error);
  if (rename(aside.c_str(), path.c_str()) != 0) return CannotCreate(path, errno);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTextFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

}  // namespace lathe::cli
