#include "services/engine/backup/restored_files.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "libs/common/digest/sha256.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

class FakeRestore final : public DatabaseRestore {
 public:
  absl::Status KeepAlive() override {
    ++num_calls;
    return outcome;
  }
  absl::Status Fill() override { return absl::OkStatus(); }

  int num_calls = 0;
  absl::Status outcome;
};

// A backup with a table of the database, and a checkpoint of one file.
struct Backup {
  Backup() {
    Add("database/table.copy", "rows");
    // More than one piece of what is read at once.
    Add("checkpoints/one/weights", std::string(3 << 20, 'w'));
  }

  void Add(const std::string& path, const std::string& text) {
    fs::create_directories((dir.path() / path).parent_path());
    std::ofstream(dir.path() / path) << text;
    manifest.files.push_back(
        {.path = path, .size_bytes = static_cast<int64_t>(text.size()), .sha256 = Sha256Hex(text)});
  }

  absl::Status Copy(absl::Duration period) {
    return CopyBackupFiles(manifest, dir.path(), dir.path() / "part", database, period);
  }

  TempDir dir;
  BackupManifest manifest;
  FakeRestore database;
};

TEST_CASE("RestoredFiles: the database hears of a long restore, also within a file", "[backup]") {
  Backup backup;
  REQUIRE(backup.Copy(absl::ZeroDuration()).ok());
  CHECK(backup.database.num_calls == 4);
  CHECK(fs::file_size(backup.dir.path() / "part/checkpoints/one/weights") == 3 << 20);
  CHECK_FALSE(fs::exists(backup.dir.path() / "part/database"));
}

TEST_CASE("RestoredFiles: the database hears nothing of a short restore", "[backup]") {
  Backup backup;
  REQUIRE(backup.Copy(absl::Hours(1)).ok());
  CHECK(backup.database.num_calls == 0);
}

TEST_CASE("RestoredFiles: a database that is gone ends the restore at once", "[backup]") {
  Backup backup;
  backup.database.outcome = absl::UnavailableError("gone");
  CHECK(absl::IsUnavailable(backup.Copy(absl::ZeroDuration())));
  CHECK(backup.database.num_calls == 1);
  CHECK_FALSE(fs::exists(backup.dir.path() / "part/checkpoints/one/weights"));
}

}  // namespace
}  // namespace lathe::engine
