// Copies of a backup's files on their way into a data directory.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/engine/backup/backup_manifest.h"
#include "services/engine/store/database_view.h"

namespace lathe::engine {

// Proxies and firewalls end a connection that is silent for a minute or more.
inline constexpr absl::Duration kKeepAlivePeriod = absl::Seconds(30);

// Copies the files below checkpoints and bodies into `part`, and compares all with their digests.
// Calls `database.KeepAlive` each `period`, also within a large file, and returns its error.
absl::Status CopyBackupFiles(const BackupManifest& manifest, const std::filesystem::path& backup,
                             const std::filesystem::path& part, DatabaseRestore& database,
                             absl::Duration period = kKeepAlivePeriod);

}  // namespace lathe::engine
