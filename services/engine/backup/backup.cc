#include "services/engine/backup/backup.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "libs/common/status_macros.h"
#include "libs/common/version.h"
#include "services/engine/backup/backup_files.h"
#include "services/engine/backup/files.h"
#include "services/engine/backup/pins.h"
#include "services/engine/store/database_view.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

// Each try waits for no one, and a file can vanish in a few milliseconds only.
constexpr int kMaxTries = 20;

// A view whose files are all linked.
struct Linked {
  std::unique_ptr<DatabaseView> view;
  absl::Time at;
  std::vector<std::string> damaged;
  std::vector<std::string> dirs;  // checkpoints/DIR, which the database names
};

// Paths that two views in a row name were missing before the second view: the engine deletes a file
// only after it has committed that no row names it. So another view would not help.
std::vector<std::string> MissingTwice(std::vector<std::string> before,
                                      std::vector<std::string> now) {
  std::ranges::sort(before);
  std::ranges::sort(now);
  std::vector<std::string> both;
  std::ranges::set_intersection(before, now, std::back_inserter(both));
  return both;
}

absl::StatusOr<Linked> LinkAll(const BackupOptions& options, Pins& pins) {
  std::vector<std::string> missing_before;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    RETURN_IF_ERROR(pins.LinkPresent());
    Linked linked{.at = absl::Now()};
    ASSIGN_OR_RETURN(linked.view, ViewDatabase(options.store, options.data_dir));
    ASSIGN_OR_RETURN(const NeededFiles needed, FindNeededFiles(*linked.view));
    ASSIGN_OR_RETURN(const std::vector<std::string> missing, pins.Link(needed));
    linked.damaged = MissingTwice(missing_before, missing);
    if (linked.damaged.size() == missing.size()) {
      std::erase_if(linked.damaged, [&](const std::string& path) {
        absl::string_view body_id = path;
        return absl::ConsumePrefix(&body_id, "bodies/") &&
               !needed.unfinished_bodies.contains(std::string(body_id));
      });
      for (const NeededDir& dir : needed.dirs) {
        if (dir.must_exist) linked.dirs.push_back("checkpoints/" + dir.dir);
      }
      return linked;
    }
    missing_before = missing;
  }
  return absl::UnavailableError(
      absl::StrFormat("files of the database vanished in each of %d tries, at last %s", kMaxTries,
                      missing_before.front()));
}

// With an object store, the files are there and not in the data directory.
absl::Status CheckObjectStore(const Linked& linked) {
  if (linked.damaged.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool has_object_store, linked.view->HasObjectStore());
  if (!has_object_store) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      linked.damaged.front(),
      " is not in the data directory: the checkpoints are in an object store, which lathe backup "
      "does not read (docs/deploy/backup.md)"));
}

// Adds the files of checkpoints that are missing or differ from their manifests to `damaged`.
void CompareWithManifests(const fs::path& root, const std::vector<BackupFile>& files,
                          std::vector<std::string>& damaged) {
  std::unordered_map<std::string, const BackupFile*> present;
  for (const BackupFile& file : files) present[file.path] = &file;
  for (const BackupFile& file : files) {
    const fs::path path(file.path);
    if (!absl::StartsWith(file.path, "checkpoints/") || path.filename() != "manifest.json")
      continue;
    for (const BackupFile& listed : FilesOfCheckpoint(root / path)) {
      const std::string named = (path.parent_path() / listed.path).string();
      const auto found = present.find(named);
      const bool is_whole = found != present.end() && found->second->sha256 == listed.sha256;
      if (!is_whole) damaged.push_back(named);
    }
  }
}

// Fails unless each of `expected` is in `manifest`. A file system that loses entries of a directory
// must not make a backup that counts as complete.
absl::Status CheckHasAll(const BackupManifest& manifest, const std::vector<std::string>& expected) {
  std::unordered_set<std::string> present(manifest.damaged.begin(), manifest.damaged.end());
  for (const BackupFile& file : manifest.files) present.insert(file.path);
  for (const std::string& path : expected) {
    if (present.contains(path)) continue;
    return absl::DataLossError(absl::StrCat(path, " was written and is not in the backup"));
  }
  return absl::OkStatus();
}

absl::Status ListBackup(const fs::path& root, const std::vector<std::string>& expected,
                        BackupManifest& manifest) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFiles(root));
  for (const std::string& path : files) {
    absl::StatusOr<BackupFile> file = DigestFile(root, path);
    if (file.ok()) {
      manifest.files.push_back(*std::move(file));
    } else if (absl::IsDataLoss(file.status()) && !absl::StartsWith(path, "database/")) {
      manifest.damaged.push_back(path);
    } else {
      return file.status();
    }
  }
  RETURN_IF_ERROR(CheckHasAll(manifest, expected));
  CompareWithManifests(root, manifest.files, manifest.damaged);
  std::ranges::sort(manifest.damaged);
  const auto again = std::ranges::unique(manifest.damaged);
  manifest.damaged.erase(again.begin(), again.end());
  return absl::OkStatus();
}

// Fails if the backup has none of `dirs`, although the database names them. A wrong or empty volume
// must not make a backup for which good ones are removed.
absl::Status CheckHasSome(const BackupManifest& manifest, const std::vector<std::string>& dirs) {
  const std::unordered_set<std::string> damaged(manifest.damaged.begin(), manifest.damaged.end());
  const bool has_some = std::ranges::any_of(dirs, [&](const std::string& dir) {
    return !damaged.contains(dir) && !damaged.contains(dir + "/manifest.json");
  });
  if (dirs.empty() || has_some) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "all %d directories of checkpoints that the database names are missing or damaged, first %s",
      static_cast<int>(dirs.size()), dirs.front()));
}

// The engine owns what is in these folders, and the links of backups are in one of them.
absl::Status CheckIsOutside(const fs::path& dir, const fs::path& data_dir) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(dir, ignored);
  for (const char* const part : {"checkpoints", "bodies"}) {
    const fs::path owned = fs::weakly_canonical(data_dir / part, ignored);
    const auto [end, unused] = std::ranges::mismatch(owned, real);
    if (end != owned.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is in %s, which belongs to the service; name another folder",
                        dir.string(), owned.string()));
  }
  return absl::OkStatus();
}

absl::StatusOr<BackupManifest> FillBackup(const BackupOptions& options, Pins pins) {
  ASSIGN_OR_RETURN(Linked linked, LinkAll(options, pins));
  RETURN_IF_ERROR(CheckObjectStore(linked));
  RETURN_IF_ERROR(MakeDir(options.dir / "database"));
  ASSIGN_OR_RETURN(std::vector<std::string> expected,
                   linked.view->CopyTo(options.dir / "database"));
  for (std::string& file : expected) file.insert(0, "database/");
  expected.insert(expected.end(), pins.files().begin(), pins.files().end());
  BackupManifest manifest{
      .lathe_version = std::string(kVersion),
      .created_at = absl::FormatTime(absl::RFC3339_sec, linked.at, absl::UTCTimeZone()),
      .store = linked.view->kind(),
      .schema_version = linked.view->schema_version(),
      .damaged = std::move(linked.damaged)};
  linked.view.reset();
  ASSIGN_OR_RETURN(const std::vector<std::string> unreadable, MoveFiles(pins.root(), options.dir));
  manifest.damaged.insert(manifest.damaged.end(), unreadable.begin(), unreadable.end());
  RETURN_IF_ERROR(ListBackup(options.dir, expected, manifest));
  RETURN_IF_ERROR(CheckHasSome(manifest, linked.dirs));
  RETURN_IF_ERROR(SyncTree(options.dir));
  RETURN_IF_ERROR(WriteBackupManifest(options.dir, manifest));
  return manifest;
}

}  // namespace

absl::StatusOr<BackupManifest> MakeBackup(const BackupOptions& options) {
  RETURN_IF_ERROR(CheckIsOutside(options.dir, options.data_dir));
  // The lock comes before the look at the folder. So a second backup into it leaves it alone.
  ASSIGN_OR_RETURN(Pins pins, Pins::Take(options.data_dir));
  ASSIGN_OR_RETURN(const std::string entry, FirstEntry(options.dir, {"lost+found"}));
  if (!entry.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is not empty: it has %s; name a new folder", options.dir.string(), entry));
  }
  RETURN_IF_ERROR(MakeDir(options.dir));
  absl::StatusOr<BackupManifest> manifest = FillBackup(options, std::move(pins));
  if (manifest.ok()) return manifest;
  std::error_code ignored;
  for (const char* const part : {"database", "checkpoints", "bodies"}) {
    fs::remove_all(options.dir / part, ignored);
  }
  fs::remove(options.dir, ignored);
  return manifest;
}

}  // namespace lathe::engine
