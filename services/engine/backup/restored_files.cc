#include "services/engine/backup/restored_files.h"

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/backup/files.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

absl::Status CheckDigest(const BackupFile& expected, const BackupFile& found,
                         const fs::path& backup) {
  if (found.sha256 == expected.sha256 && found.size_bytes == expected.size_bytes) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat("%s differs from its digest in backup.json",
                                             (backup / expected.path).string()));
}

}  // namespace

absl::Status CopyBackupFiles(const BackupManifest& manifest, const fs::path& backup,
                             const fs::path& part, DatabaseRestore& database,
                             absl::Duration period) {
  absl::Time heard_of_us = SteadyNow();
  const auto keep_alive = [&] {
    if (SteadyNow() - heard_of_us < period) return absl::OkStatus();
    heard_of_us = SteadyNow();
    return database.KeepAlive();
  };
  for (const BackupFile& file : manifest.files) {
    if (absl::StartsWith(file.path, "database/")) {
      ASSIGN_OR_RETURN(const BackupFile found, DigestFile(backup, file.path, keep_alive));
      RETURN_IF_ERROR(CheckDigest(file, found, backup));
      continue;
    }
    RETURN_IF_ERROR(MakeDir((part / file.path).parent_path()));
    ASSIGN_OR_RETURN(const BackupFile copied,
                     CopyFile(backup / file.path, part / file.path, keep_alive));
    RETURN_IF_ERROR(CheckDigest(file, copied, backup));
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
