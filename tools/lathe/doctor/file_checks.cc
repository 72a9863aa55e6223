#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/doctor/check.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kGibBytes = 1 << 30;
// A new SQLite database came into being in 1 MiB, and not in 256 KiB.
constexpr double kLeastSpace = 1 << 20;
constexpr double kGoodSpace = 5 * kGibBytes;
constexpr int kWrites = 20;
constexpr absl::Duration kSlowWrite = absl::Milliseconds(100);
constexpr size_t kLongestSocketPath = 100;
constexpr auto kOldAttempt = std::chrono::hours(24);
// A trial takes seconds. What is older was left by a doctor that was killed.
constexpr time_t kOldTrialSeconds = 3600;
constexpr char kTrialPrefix[] = ".doctor-";

// File systems that linux/magic.h does not name.
constexpr int64_t kFuseMagic = 0x65735546;
constexpr int64_t kCifsMagic = 0xFF534D42;

struct FileSystem {
  int64_t magic;
  const char* name;
};
constexpr FileSystem kShared[] = {{NFS_SUPER_MAGIC, "NFS"},  {kCifsMagic, "CIFS"},
                                  {SMB2_SUPER_MAGIC, "SMB"}, {kFuseMagic, "FUSE"},
                                  {V9FS_MAGIC, "9p"},        {CEPH_SUPER_MAGIC, "CephFS"}};
constexpr FileSystem kPassing[] = {{TMPFS_MAGIC, "tmpfs"}, {OVERLAYFS_SUPER_MAGIC, "overlay"}};

const char* NameOf(int64_t magic, const FileSystem* begin, const FileSystem* end) {
  const auto* found = std::find_if(begin, end, [&](const FileSystem& each) {
    // The kernel gives a long, of which some file systems use only 32 bits.
    return static_cast<uint32_t>(each.magic) == static_cast<uint32_t>(magic);
  });
  return found == end ? nullptr : found->name;
}

std::vector<Finding> NoDataDir() {
  return {{.state = CheckState::kSkipped, .found = "no data directory is set"}};
}

// Returns `path` or its nearest parent that exists.
fs::path Nearest(fs::path path) {
  std::error_code error;
  while (!fs::exists(path, error) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

std::vector<Finding> CheckDataDir(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  const fs::path dir = input.Data().path();
  const fs::path nearest = Nearest(dir);
  struct stat info {};
  if (stat(nearest.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return {{.state = CheckState::kError,
             .found = absl::StrCat(nearest.string(), " is not a folder"),
             .remedy = "name another folder with --data-dir"}};
  }
  // A gateway only reads checkpoints there.
  const bool only_reads = input.role == Role::kGateway;
  if (faccessat(AT_FDCWD, nearest.c_str(), (only_reads ? R_OK : W_OK) | X_OK, AT_EACCESS) != 0) {
    return {{.state = CheckState::kError,
             .found = absl::StrCat(nearest.string(), " cannot be ", only_reads ? "read" : "written",
                                   ": ", std::strerror(errno)),
             .expected = absl::StrCat("rights for user ", geteuid()),
             .remedy = absl::StrCat("chown ", geteuid(), " ", nearest.string(),
                                    only_reads ? "" : ", or mount it for writing")}};
  }
  if (nearest != dir) return {{.found = absl::StrCat(dir.string(), " will be created")}};
  return {{.found = dir.string()}};
}

// `lathe up` writes its lock, and SQLite its files, before they serve. Other programs start in a
// full directory and serve; what they save waits for room.
CheckState StateWithoutRoom(const CheckInput& input) {
  return input.role == Role::kUp || input.IsSqlite() ? CheckState::kError : CheckState::kWarning;
}

std::vector<Finding> CheckSpace(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  const fs::path dir = Nearest(input.Data().path());
  struct statvfs info {};
  if (statvfs(dir.c_str(), &info) != 0) {
    return {{.state = CheckState::kSkipped, .found = std::strerror(errno)}};
  }
  const double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (info.f_favail == 0 && info.f_files > 0) {
    return {{.state = StateWithoutRoom(input),
             .found = absl::StrCat("no free inodes below ", dir.string()),
             .remedy = "delete small files there, or use another file system"}};
  }
  const std::string found = absl::StrCat(GibText(bytes), " free below ", dir.string());
  if (bytes >= kGoodSpace) return {{.found = found}};
  return {{.state = bytes < kLeastSpace ? StateWithoutRoom(input) : CheckState::kWarning,
           .found = found,
           .expected = "at least 5 GiB, for checkpoints and logs",
           .remedy = "free space there, or name another folder with --data-dir"}};
}

std::vector<Finding> CheckFileSystem(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  const fs::path dir = Nearest(input.Data().path());
  struct statfs info {};
  if (statfs(dir.c_str(), &info) != 0) {
    return {{.state = CheckState::kSkipped, .found = std::strerror(errno)}};
  }
  if (const char* name = NameOf(info.f_type, std::begin(kShared), std::end(kShared))) {
    if (!input.IsSqlite()) return {{.found = name}};
    return {
        {.state = CheckState::kError,
         .found = absl::StrCat("SQLite on ", name),
         .expected = "a local disk, because locks of network file systems do not hold",
         .remedy = "move the data directory to a local disk, or use Postgres (docs/database.md)"}};
  }
  if (const char* name = NameOf(info.f_type, std::begin(kPassing), std::end(kPassing))) {
    return {{.state = CheckState::kWarning,
             .found = absl::StrCat(dir.string(), " is on ", name),
             .expected = "a file system that outlives the machine or container",
             .remedy = "mount a disk or a volume there"}};
  }
  return {{.found = "a local disk"}};
}

// A file that is removed at the end. Its name is random, because containers that share a directory
// have the same process ids.
class Trial {
 public:
  explicit Trial(const fs::path& dir)
      : path_((dir / kTrialPrefix).string() + "XXXXXX"), fd_(mkostemp(path_.data(), O_CLOEXEC)) {}
  Trial(const Trial&) = delete;
  ~Trial() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(path_.c_str());
    unlink(Other().c_str());
  }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::string Other() const { return path_ + ".other"; }

 private:
  std::string path_;
  const int fd_;
};

// Removes old files of doctors that were killed. Their age is against the time of `trial`, which
// the same file system has written. Other clocks may differ.
void RemoveOldTrials(const fs::path& dir, const Trial& trial) {
  struct stat now {};
  if (fstat(trial.fd(), &now) != 0) return;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    struct stat info {};
    const bool is_old = absl::StartsWith(it->path().filename().string(), kTrialPrefix) &&
                        lstat(it->path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
                        now.st_mtime - info.st_mtime > kOldTrialSeconds;
    if (is_old) unlink(it->path().c_str());
  }
}

// Writes kWrites blocks, each durable. Returns the times, ascending; nullopt and errno after an
// error.
std::optional<std::vector<absl::Duration>> WriteBlocks(int fd) {
  std::array<char, 4096> block;
  block.fill('x');
  std::vector<absl::Duration> times;
  for (int i = 0; i < kWrites; ++i) {
    const absl::Time begin = SteadyNow();
    const ssize_t written = write(fd, block.data(), block.size());
    if (written >= 0 && written < static_cast<ssize_t>(block.size())) errno = ENOSPC;
    if (written != static_cast<ssize_t>(block.size()) || fdatasync(fd) != 0) return std::nullopt;
    times.push_back(SteadyNow() - begin);
  }
  std::sort(times.begin(), times.end());
  return times;
}

std::vector<Finding> CheckWrites(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  std::error_code error;
  const fs::path dir = input.Data().path();
  if (!fs::is_directory(dir, error)) {
    return {{.state = CheckState::kSkipped, .found = "the data directory does not exist yet"}};
  }
  const Trial trial(dir);
  const std::optional<std::vector<absl::Duration>> times =
      trial.fd() < 0 ? std::nullopt : WriteBlocks(trial.fd());
  if (!times || link(trial.path().c_str(), trial.Other().c_str()) != 0 ||
      rename(trial.Other().c_str(), trial.path().c_str()) != 0) {
    const int failure = errno;
    const bool is_full = failure == ENOSPC || failure == EDQUOT;
    return {{.state = is_full ? StateWithoutRoom(input) : CheckState::kError,
             .found = absl::StrCat("files cannot be written, linked and renamed in ", dir.string(),
                                   ": ", std::strerror(failure)),
             .remedy = is_full ? "free space there, or name another folder with --data-dir"
                               : "mount a file system with hard links, rename and fsync there"}};
  }
  RemoveOldTrials(dir, trial);
  const std::string found = absl::StrFormat("fsync %.1f ms, the slowest of %d %.1f ms",
                                            absl::ToDoubleMilliseconds((*times)[kWrites / 2]),
                                            kWrites, absl::ToDoubleMilliseconds(times->back()));
  if ((*times)[kWrites / 2] < kSlowWrite) return {{.found = found}};
  return {{.state = CheckState::kWarning,
           .found = found,
           .expected = "less than 100 ms, because each request waits for it",
           .remedy = "use a faster disk, or one that nothing else writes to"}};
}

std::vector<Finding> CheckSockets(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  const fs::path longest = input.Data().socket_dir() / "engine.sock";
  if (longest.string().size() <= kLongestSocketPath) return {{.found = longest.parent_path()}};
  return {{.state = CheckState::kError,
           .found = absl::StrCat(longest.string(), " has ", longest.string().size(), " bytes"),
           .expected = absl::StrCat("at most ", kLongestSocketPath),
           .remedy = "name a shorter folder with --run-dir"}};
}

std::vector<Finding> CheckSecrets(const CheckInput& input) {
  std::vector<std::string> paths;
  if (!input.DataDirPath().empty()) {
    const DataDir data = input.Data();
    paths = {data.admin_key(), data.socket_dir() / "secret", data.socket_dir() / "gateway.secret"};
  }
  for (const auto& [key, value] : input.options) {
    const bool names_a_secret = absl::EndsWith(key, "_key") || absl::EndsWith(key, "_file");
    if (!value.empty() && names_a_secret) paths.push_back(value);
  }
  std::vector<Finding> findings;
  int num_files = 0;
  for (const std::string& path : paths) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) continue;
    ++num_files;
    if ((info.st_mode & 077) == 0) continue;
    // A file of another user was mounted. Only its owner can change its rights.
    const bool is_ours = info.st_uid == geteuid();
    const bool is_public = (info.st_mode & 07) != 0;
    findings.push_back(
        {.state = is_ours && is_public ? CheckState::kError : CheckState::kWarning,
         .found = absl::StrFormat("%s has mode %04o", path, info.st_mode & 07777),
         .expected = "readable for its owner only",
         .remedy = is_ours ? absl::StrCat("chmod 600 ", path)
                           : "mount it with fewer rights (Kubernetes: defaultMode: 0400)"});
  }
  if (!findings.empty()) return findings;
  return {{.found = absl::StrCat(num_files, " files, readable for their owner only")}};
}

std::vector<Finding> CheckAttempts(const CheckInput& input) {
  if (input.DataDirPath().empty()) return NoDataDir();
  int num_old = 0;
  std::error_code error;
  const fs::path folder = input.Data().path() / "checkpoints" / "tmp";
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto written = fs::last_write_time(entry.path(), error);
    if (!error && fs::file_time_type::clock::now() - written > kOldAttempt) ++num_old;
  }
  if (num_old == 0) return {{.found = "none that are older than a day"}};
  return {{.state = CheckState::kWarning,
           .found = absl::StrCat(num_old, " in ", folder.string(), " are older than a day"),
           .remedy = "start a worker, which removes them, or delete them while no worker runs"}};
}

}  // namespace

const std::vector<DoctorCheck>& FileChecks() {
  static const auto& writers =
      *new std::vector<Role>{Role::kUp, Role::kEngine, Role::kWorker, Role::kRanks};
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "files.data_dir", .why = "all state is there", .run = CheckDataDir},
      {.name = "files.space",
       .why = "without room nothing is accepted",
       .roles = writers,
       .run = CheckSpace},
      {.name = "files.file_system",
       .why = "what was acknowledged must stay",
       .run = CheckFileSystem},
      {.name = "files.writes",
       .why = "each request waits for a durable write",
       .roles = writers,
       .run = CheckWrites},
      {.name = "files.sockets",
       .why = "the kernel bounds the length of their paths",
       .roles = writers,
       .run = CheckSockets},
      {.name = "files.secrets", .why = "who reads them is an administrator", .run = CheckSecrets},
      {.name = "files.attempts",
       .why = "unfinished saves take space",
       .roles = writers,
       .run = CheckAttempts},
  };
  return checks;
}

}  // namespace lathe::cli
