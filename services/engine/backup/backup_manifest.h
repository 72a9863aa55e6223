// The list of a backup's files, which makes it complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

struct BackupFile {
  std::string path;  // below the backup's folder
  int64_t size_bytes = 0;
  std::string sha256;
};

// Returns the files that the manifest of a checkpoint lists, by their names in its directory. None
// if it cannot be parsed.
std::vector<BackupFile> FilesOfCheckpoint(const std::filesystem::path& manifest);

// Contents of backup.json. It is written last, so a backup without it is incomplete.
struct BackupManifest {
  std::string lathe_version;
  std::string created_at;  // RFC 3339: when the database was as in the backup
  std::string store;       // DatabaseView::kind
  int64_t schema_version = 0;
  std::vector<BackupFile> files;
  // Paths that the database names and that were missing, or had other contents than it says.
  std::vector<std::string> damaged;
};

// The file is durable when this returns.
absl::Status WriteBackupManifest(const std::filesystem::path& dir, const BackupManifest& manifest);

// Returns FailedPrecondition if the backup is incomplete or of a later format, and DataLoss if the
// manifest was changed.
absl::StatusOr<BackupManifest> ReadBackupManifest(const std::filesystem::path& dir);

}  // namespace lathe::engine
