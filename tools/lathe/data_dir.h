// The directory that holds everything Lathe keeps, and the sockets of a running one.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::cli {

// DIR/{lathe.db,bodies,checkpoints,snapshots,logs,run,admin.key}. Paths only: creates nothing.
class DataDir {
 public:
  // `dir` made absolute. The sockets' folder is `run_dir`, if empty DIR/run, or one under /tmp
  // named after DIR and the user when a socket's path would pass 100 bytes (the kernel takes 107).
  explicit DataDir(const std::filesystem::path& dir, const std::filesystem::path& run_dir = "");

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path run() const { return path_ / "run"; }
  std::filesystem::path logs() const { return path_ / "logs"; }
  std::filesystem::path admin_key() const { return path_ / "admin.key"; }
  // Where the sockets are; `has_own_socket_dir` when it is not run().
  const std::filesystem::path& socket_dir() const { return socket_dir_; }
  bool has_own_socket_dir() const { return socket_dir_ != run(); }
  // "unix:PATH" of the engine's listeners: engine, admin or worker.
  std::string SocketAddress(const std::string& listener) const;

  // Creates what is missing with mode 0700, and `secret` (0600) for the workers beside the sockets.
  // Errors: permission, cannot_create.
  absl::Status Create() const;

 private:
  std::filesystem::path path_;
  std::filesystem::path socket_dir_;
};

// --data-dir's default: $XDG_DATA_HOME/lathe or ~/.local/share/lathe.
std::string DefaultDataDir();

// Held by the one `lathe up` of a data directory, and by its process alone: the kernel lets go of
// it when the process ends, however it ends.
class DataDirLock {
 public:
  // Error data_dir_in_use naming the holder's pid.
  static absl::StatusOr<DataDirLock> Take(const DataDir& dir);
  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&&) = delete;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}
  int fd_;
};

// Writes `text` so that a reader sees the old file or the new one, never a part.
absl::Status WriteFileAtomically(const std::filesystem::path& path, const std::string& text,
                                 mode_t mode);

// The file's text without the white space at its end. NotFound when it cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::filesystem::path& path);

}  // namespace lathe::cli
