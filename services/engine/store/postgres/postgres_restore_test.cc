#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "services/engine/store/database_view.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/postgres/table_copy.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

constexpr char kCountTables[] =
    "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
int64_t NumberOf(PostgresConnection& connection, const char* sql) {
  Query query = connection.Prepare(sql);
  query.Next();
  return query.Int();
}

// A copy of a database that also has a table of somebody else.
struct Copied {
  Copied() {
    PostgresConnection connection = source.database().Connect();
    CHECK(NumberOf(connection, kCountTables) == static_cast<int64_t>(TablesOf(OwnSchema()).size()));
    connection.Execute("CREATE TABLE theirs (id bigint GENERATED ALWAYS AS IDENTITY)");
    absl::StatusOr<std::unique_ptr<DatabaseView>> view = ViewPostgres(source.database().url());
    REQUIRE(view.ok());
    absl::StatusOr<std::vector<std::string>> copied = (*view)->CopyTo(dir.path());
    REQUIRE(copied.ok());
    files = *copied;
  }

  PostgresHarness source;
  TempDir dir;
  std::vector<std::string> files;
};

TEST_CASE("PostgresView: only the tables of the schema are copied", "[store]") {
  const Copied copied;
  CHECK(copied.files.size() == TablesOf(OwnSchema()).size() + 1);
  for (const std::string& file : copied.files) {
    CHECK(file != "theirs.copy");
    CHECK(std::filesystem::exists(copied.dir.path() / file));
  }
}

}  // namespace
}  // namespace lathe::engine
