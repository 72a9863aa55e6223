#include <catch2/catch.hpp>
#include <string>

#include "services/engine/store/database_view.h"
#include "services/engine/store/sqlite/sqlite_harness.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> CopyOf(const SqliteHarness& harness, const fs::path& dir) {
  absl::StatusOr<std::unique_ptr<DatabaseView>> view = ViewSqlite(harness.options().database);
  REQUIRE(view.ok());
  return (*view)->CopyTo(dir);
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
