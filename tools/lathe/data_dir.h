// The data directory: all persistent state of Lathe, and the sockets of a running instance.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::cli {

// Paths in a data directory: DIR/{lathe.db,bodies,checkpoints,snapshots,logs,run,admin.key}. Only
// Create() touches the file system.
class DataDir {
 public:
  // `dir` is made absolute. `run_dir` is the folder of the sockets; empty: DIR/run. If a socket
  // path in DIR/run would exceed 100 bytes (the kernel's limit is 107), the folder is instead one
  // under /tmp, named after the user and DIR.
  explicit DataDir(const std::filesystem::path& dir, const std::filesystem::path& run_dir = "");

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path run() const { return path_ / "run"; }
  std::filesystem::path logs() const { return path_ / "logs"; }
  // {"up": pid, "engine": pid, ...}. The file exists while `lathe up` runs and after it was killed.
  std::filesystem::path pids() const { return run() / "pids.json"; }
  std::filesystem::path admin_key() const { return path_ / "admin.key"; }
  // Folder of the sockets. `has_own_socket_dir` is true if it is not run().
  const std::filesystem::path& socket_dir() const { return socket_dir_; }
  bool has_own_socket_dir() const { return socket_dir_ != run(); }
  // Returns "unix:PATH" of one of the engine's listeners: engine, admin or worker.
  std::string SocketAddress(const std::string& listener) const;

  // Creates missing folders with mode 0700, and the workers' `secret` file (0600) in the socket
  // folder. run() keeps a copy, because systemd empties other socket folders at each stop. Errors:
  // permission, cannot_create.
  absl::Status Create() const;

 private:
  absl::Status CreateSecret() const;

  std::filesystem::path path_;
  std::filesystem::path socket_dir_;
};

// Default of --data-dir: $XDG_DATA_HOME/lathe or ~/.local/share/lathe.
std::string DefaultDataDir();

// Exclusive lock of a data directory, held by the `lathe up` that uses it. Children do not inherit
// it, and the kernel releases it when the process ends for any reason.
class DataDirLock {
 public:
  // Fails with data_dir_in_use, naming the holder's pid, if another process holds the lock.
  static absl::StatusOr<DataDirLock> Take(const DataDir& dir);
  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&&) = delete;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}
  int fd_;
};

// Writes `text` so that a reader sees either the old file or the complete new one.
absl::Status WriteFileAtomically(const std::filesystem::path& path, const std::string& text,
                                 mode_t mode);

// Returns the file's text without trailing white space. NotFound if it cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::filesystem::path& path);

}  // namespace lathe::cli
