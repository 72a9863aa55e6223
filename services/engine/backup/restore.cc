#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/backup/backup.h"
#include "services/engine/backup/files.h"
#include "services/engine/store/data_dir_lock.h"
#include "services/engine/store/database_view.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

// Files on their way. A restore that was killed leaves it; the next one removes it.
constexpr char kPart[] = "restore.part";
constexpr char kLock[] = "engine.lock";

// Removes what a failed restore has written.
void RemoveRestored(const fs::path& data_dir) {
  std::error_code ignored;
  for (const char* const name : {"checkpoints", "bodies", kPart, kLock}) {
    fs::remove_all(data_dir / name, ignored);
  }
}

absl::Status CheckDigest(const BackupFile& expected, const BackupFile& found,
                         const fs::path& backup) {
  if (found.sha256 == expected.sha256 && found.size_bytes == expected.size_bytes) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat("%s differs from its digest in backup.json",
                                             (backup / expected.path).string()));
}

// Copies the files below checkpoints and bodies into `part`, and compares all with their digests.
absl::Status CopyFiles(const BackupManifest& manifest, const fs::path& backup,
                       const fs::path& part) {
  for (const BackupFile& file : manifest.files) {
    if (absl::StartsWith(file.path, "database/")) {
      ASSIGN_OR_RETURN(const BackupFile found, DigestFile(backup, file.path));
      RETURN_IF_ERROR(CheckDigest(file, found, backup));
      continue;
    }
    RETURN_IF_ERROR(MakeDir((part / file.path).parent_path()));
    ASSIGN_OR_RETURN(const BackupFile copied, CopyFile(backup / file.path, part / file.path));
    RETURN_IF_ERROR(CheckDigest(file, copied, backup));
  }
  return absl::OkStatus();
}

// The database comes last: an engine never finds one whose files are not there.
absl::Status FillDataDir(const BackupOptions& options, const BackupManifest& manifest,
                         const DatabaseCopy& copy) {
  const fs::path part = options.data_dir / kPart;
  std::error_code ignored;
  fs::remove_all(part, ignored);
  RETURN_IF_ERROR(MakeDir(part));
  RETURN_IF_ERROR(CopyFiles(manifest, options.dir, part));
  RETURN_IF_ERROR(MoveFiles(part, options.data_dir));
  fs::remove_all(part, ignored);
  RETURN_IF_ERROR(SyncTree(options.data_dir));
  return RestoreDatabase(copy, options.store, options.data_dir);
}

}  // namespace

absl::StatusOr<BackupManifest> RestoreBackup(const BackupOptions& options) {
  ASSIGN_OR_RETURN(BackupManifest manifest, ReadBackupManifest(options.dir));
  const DatabaseCopy copy{.kind = manifest.store,
                          .schema_version = manifest.schema_version,
                          .dir = options.dir / "database"};
  if (const std::string entry = FirstEntry(options.data_dir, {"lost+found", kPart, kLock});
      !entry.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is not empty: it has %s; restore into a new place", options.data_dir.string(), entry));
  }
  // Keeps a SQLite engine away.
  ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Take(options.data_dir));
  absl::Status status = CheckRestorable(copy, options.store, options.data_dir);
  if (status.ok()) status = FillDataDir(options, manifest, copy);
  if (status.ok()) return manifest;
  RemoveRestored(options.data_dir);
  return status;
}

}  // namespace lathe::engine
