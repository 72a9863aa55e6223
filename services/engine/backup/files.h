// Links, copies, digests and lists of files that never change.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/backup/backup_manifest.h"

namespace lathe::engine {

// Functions that read a file return NotFound if it does not exist, DataLoss if the disk cannot read
// it, and PermissionDenied if this process may not.

// Returns OK without an error, and such a status for one of listing `dir`.
absl::Status ListStatus(const std::error_code& error, const std::filesystem::path& dir);

// Makes `to` a hard link of the file `from`, or a durable copy if they are on two file systems.
absl::Status LinkFile(const std::filesystem::path& from, const std::filesystem::path& to);

// Functions that read a whole file call this after each MiB, and return its error.
using AfterPiece = std::function<absl::Status()>;

// Makes `to` a durable copy of `from`. Returns its size and digest; their path is empty.
absl::StatusOr<BackupFile> CopyFile(const std::filesystem::path& from,
                                    const std::filesystem::path& to,
                                    const AfterPiece& after_piece = {});

// Returns size and digest of `root`/`path`.
absl::StatusOr<BackupFile> DigestFile(const std::filesystem::path& root, const std::string& path,
                                      const AfterPiece& after_piece = {});

// Makes a directory (mode 0700) and its missing parents.
absl::Status MakeDir(const std::filesystem::path& dir);

// Returns the name of an entry of `dir` that is none of `allowed`; empty: there is none, or no such
// directory. An error: `dir` cannot be listed.
absl::StatusOr<std::string> FirstEntry(const std::filesystem::path& dir,
                                       const std::vector<std::string>& allowed);

// Returns the paths of all files below `root`, relative to it, sorted. Leaves out
// `root`/lost+found. An error: a directory cannot be listed.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::filesystem::path& root);

// Moves every file below `from` to the same path below `to`, over file systems too. Returns the
// paths of those that cannot be read, which stay.
absl::StatusOr<std::vector<std::string>> MoveFiles(const std::filesystem::path& from,
                                                   const std::filesystem::path& to);

// Makes all names below and in `root` durable.
absl::Status SyncTree(const std::filesystem::path& root);

}  // namespace lathe::engine
