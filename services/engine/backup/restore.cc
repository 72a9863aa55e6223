#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/backup/backup.h"
#include "services/engine/backup/files.h"
#include "services/engine/backup/restored_files.h"
#include "services/engine/store/data_dir_lock.h"
#include "services/engine/store/database_view.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

// Files on their way. A restore that was killed leaves it; the next one removes it.
constexpr char kPart[] = "restore.part";
constexpr char kLock[] = "engine.lock";

// Removes what a failed restore has written, and the folders that are empty then.
void RemoveRestored(const fs::path& data_dir, const BackupManifest& manifest, bool had_lock) {
  std::error_code ignored;
  fs::remove_all(data_dir / kPart, ignored);
  for (const BackupFile& file : manifest.files) {
    if (absl::StartsWith(file.path, "database/")) continue;
    for (fs::path path = file.path; !path.empty(); path = path.parent_path()) {
      if (!fs::remove(data_dir / path, ignored) && ignored) break;
    }
  }
  if (!had_lock) fs::remove(data_dir / kLock, ignored);
}

// The database comes last: an engine never finds one whose files are not there.
absl::Status FillDataDir(const BackupOptions& options, const BackupManifest& manifest,
                         DatabaseRestore& database) {
  const fs::path part = options.data_dir / kPart;
  std::error_code ignored;
  fs::remove_all(part, ignored);
  RETURN_IF_ERROR(MakeDir(part));
  RETURN_IF_ERROR(CopyBackupFiles(manifest, options.dir, part, database));
  ASSIGN_OR_RETURN(const std::vector<std::string> unreadable, MoveFiles(part, options.data_dir));
  if (!unreadable.empty()) {
    return absl::DataLossError(absl::StrFormat("cannot read %s", (part / unreadable[0]).string()));
  }
  fs::remove_all(part, ignored);
  RETURN_IF_ERROR(SyncTree(options.data_dir));
  return database.Fill();
}

}  // namespace

absl::StatusOr<BackupManifest> RestoreBackup(const BackupOptions& options) {
  ASSIGN_OR_RETURN(BackupManifest manifest, ReadBackupManifest(options.dir));
  const DatabaseCopy copy{.kind = manifest.store,
                          .schema_version = manifest.schema_version,
                          .dir = options.dir / "database"};
  ASSIGN_OR_RETURN(const std::string entry,
                   FirstEntry(options.data_dir, {"lost+found", kPart, kLock}));
  if (!entry.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is not empty: it has %s; restore into a new place", options.data_dir.string(), entry));
  }
  std::error_code ignored;
  const bool had_lock = fs::exists(options.data_dir / kLock, ignored);
  // Keeps a SQLite engine away.
  ASSIGN_OR_RETURN(const DataDirLock lock, DataDirLock::Take(options.data_dir));
  absl::StatusOr<std::unique_ptr<DatabaseRestore>> database =
      BeginRestore(copy, options.store, options.data_dir);
  absl::Status status = database.status();
  if (status.ok()) status = FillDataDir(options, manifest, **database);
  if (status.ok()) return manifest;
  if (ErrorCode(status) == kOutcomeUnknown) {
    return absl::UnavailableError(absl::StrFormat(
        "%s. The files stay in %s. If the database has tables, the restore is complete; otherwise "
        "empty the folder and restore again",
        status.message(), options.data_dir.string()));
  }
  RemoveRestored(options.data_dir, manifest, had_lock);
  return status;
}

}  // namespace lathe::engine
