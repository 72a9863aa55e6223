#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "services/engine/store/database_view.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sqlite/sqlite_harness.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> CopyOf(const SqliteHarness& harness, const fs::path& dir) {
  absl::StatusOr<std::unique_ptr<DatabaseView>> view = ViewSqlite(harness.options().database);
  REQUIRE(view.ok());
  return (*view)->CopyTo(dir);
}

TEST_CASE("SqliteRestore: a copy fills no database that was made since the check", "[store]") {
  const SqliteHarness harness;
  const TempDir dir;
  CHECK(*CopyOf(harness, dir.path()) == std::vector<std::string>{"lathe.db"});
  const DatabaseCopy copy = {
      .kind = "sqlite", .schema_version = OwnSchema().version(), .dir = dir.path()};
  const fs::path target = dir.path() / "restored.db";
  auto restore = BeginSqliteRestore(copy, target);
  REQUIRE(restore.ok());
  std::ofstream(target) << "theirs";
  CHECK(absl::IsAlreadyExists((*restore)->Fill()));
  CHECK(fs::file_size(target) == 6);
  fs::remove(target);
  CHECK((*restore)->Fill().ok());
  CHECK(fs::file_size(target) == fs::file_size(dir.path() / "lathe.db"));
  CHECK_FALSE(fs::exists(dir.path() / "restored.db.restored"));
}

TEST_CASE("SqliteView: a copy that another connection keeps from being written is none",
          "[store]") {
  const SqliteHarness harness;
  const TempDir dir;
  Connection other((dir.path() / "lathe.db").string(),
                   SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  other.Execute("BEGIN EXCLUSIVE");
  const absl::Status status = CopyOf(harness, dir.path()).status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()),
             Catch::StartsWith("the database was not copied to " + dir.path().string()));
}

}  // namespace
}  // namespace lathe::engine
