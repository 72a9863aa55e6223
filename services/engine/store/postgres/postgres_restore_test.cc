#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "services/engine/store/database_view.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/postgres/table_copy.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

constexpr char kCountTables[] =
    "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
// The query takes the lock under which an engine makes tables, for a moment. 1: it was free.
constexpr char kTryLock[] = "SELECT pg_try_advisory_xact_lock(465642940517)::integer::bigint";

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
  DatabaseCopy copy = {
      .kind = "postgres", .schema_version = OwnSchema().version(), .dir = dir.path()};
};

TEST_CASE("PostgresView: only the tables of the schema are copied", "[store]") {
  const Copied copied;
  CHECK(copied.files.size() == TablesOf(OwnSchema()).size() + 1);
  for (const std::string& file : copied.files) {
    CHECK(file != "theirs.copy");
    CHECK(std::filesystem::exists(copied.dir.path() / file));
  }
}

// A role that may read the tables of `database` so far, and none that somebody makes later.
class Reader {
 public:
  explicit Reader(const TestDatabase& database) : connection_(database.Connect()) {
    connection_.Execute(
        absl::StrReplaceAll("CREATE ROLE reader LOGIN; DO $$BEGIN"
                            " EXECUTE format('GRANT USAGE ON SCHEMA %1$I TO reader;"
                            " GRANT SELECT ON ALL TABLES IN SCHEMA %1$I TO reader;"
                            " GRANT SELECT ON ALL SEQUENCES IN SCHEMA %1$I TO reader',"
                            " current_schema()); END$$",
                            {{"reader", role_}}));
  }
  Reader(const Reader&) = delete;
  ~Reader() { connection_.Execute(absl::StrFormat("DROP OWNED BY %1$s; DROP ROLE %1$s", role_)); }

  const std::string& role() const { return role_; }

 private:
  // Roles are those of the whole server, and a killed test leaves its own.
  const std::string role_ = absl::StrCat("reader_", getpid());
  PostgresConnection connection_;
};

TEST_CASE("PostgresView: the tables of another role need not be readable", "[store]") {
  const PostgresHarness source;
  const Reader reader(source.database());
  PostgresConnection connection = source.database().Connect();
  connection.Execute("CREATE TABLE theirs (id bigint GENERATED ALWAYS AS IDENTITY)");
  connection.Execute("SELECT setval(pg_get_serial_sequence('audit', 'id'), 900)");
  const auto view = ViewPostgres(source.database().url() + "&user=" + reader.role());
  REQUIRE(view.ok());
  const TempDir dir;
  const absl::Status status = (*view)->CopyTo(dir.path()).status();
  INFO(status);
  CHECK(status.ok());
  std::ifstream file(dir.path() / "sequences");
  const std::string sequences(std::istreambuf_iterator<char>(file), {});
  CHECK_THAT(sequences, Catch::Contains("audit\tid\t900\n"));
  CHECK_THAT(sequences, !Catch::Contains("theirs"));
}

TEST_CASE("PostgresRestore: only the tables of the schema are restored", "[store]") {
  const Copied copied;
  std::ofstream(copied.dir.path() / "theirs.copy") << "id\n1\n";
  const TestDatabase target;
  auto restore = BeginPostgresRestore(copied.copy, target.url());
  REQUIRE(restore.ok());
  CHECK((*restore)->Fill().ok());
  PostgresConnection connection = target.Connect();
  CHECK(NumberOf(connection, kCountTables) == static_cast<int64_t>(TablesOf(OwnSchema()).size()));
  CHECK(NumberOf(connection, "SELECT version FROM schema_version") == OwnSchema().version());
}

TEST_CASE("PostgresRestore: a copy without one of the tables is refused before files are copied",
          "[store]") {
  const Copied copied;
  std::filesystem::remove(copied.dir.path() / "audit.copy");
  const TestDatabase target;
  const absl::Status status = BeginPostgresRestore(copied.copy, target.url()).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Catch::EndsWith("has no table audit"));
}

TEST_CASE("PostgresRestore: a server that has ended the transaction is found out", "[store]") {
  const Copied copied;
  const TestDatabase target;
  auto restore = BeginPostgresRestore(copied.copy, target.url());
  REQUIRE(restore.ok());
  CHECK((*restore)->KeepAlive().ok());
  PostgresConnection other = target.Connect();
  CHECK(NumberOf(other,
                 "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
                 " WHERE query = 'SELECT 1' AND state = 'idle in transaction'") == 1);
  CHECK(absl::IsUnavailable((*restore)->KeepAlive()));
}

TEST_CASE("PostgresRestore: no engine makes tables from the check to the end", "[store]") {
  const Copied copied;
  const TestDatabase target;
  PostgresConnection engine = target.Connect();
  {
    auto restore = BeginPostgresRestore(copied.copy, target.url());
    REQUIRE(restore.ok());
    CHECK(NumberOf(engine, kTryLock) == 0);
  }
  // One that was given up leaves nothing.
  CHECK(NumberOf(engine, kCountTables) == 0);
  auto restore = BeginPostgresRestore(copied.copy, target.url());
  REQUIRE(restore.ok());
  CHECK((*restore)->Fill().ok());
  CHECK(NumberOf(engine, kTryLock) == 1);
  CHECK(absl::IsFailedPrecondition(BeginPostgresRestore(copied.copy, target.url()).status()));
}

}  // namespace
}  // namespace lathe::engine
