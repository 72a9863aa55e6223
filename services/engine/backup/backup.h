// Backups: a database and the files that it names, as of one moment of a running service.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/backup/backup_manifest.h"

namespace lathe::engine {

struct BackupOptions {
  std::string store;  // as OpenStore takes it
  std::filesystem::path data_dir;
  std::filesystem::path dir;  // the backup's own folder
};

// Writes a backup into `dir`, which must be missing or empty, while an engine may be running. The
// backup is what a crash of all processes at that moment would have left. Removes what it has
// written if it fails.
absl::StatusOr<BackupManifest> MakeBackup(const BackupOptions& options);

// Fills an empty data directory and an empty database from a backup, after it has compared every
// file with its digest. No engine may use them meanwhile. Removes what it has written if it fails.
absl::StatusOr<BackupManifest> RestoreBackup(const BackupOptions& options);

}  // namespace lathe::engine
