#include "services/engine/store/sql/schema.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "services/engine/store/testing/later_schemas.h"

namespace lathe::engine {
namespace {

// The migrations of this release and one more, in a release of `protocol`.
absl::Status CheckWith(const Migration& last, int64_t protocol) {
  std::vector<Migration> migrations(Migrations().begin(), Migrations().end());
  migrations.push_back(last);
  return CheckMigrations({.migrations = migrations, .protocol = protocol});
}

SchemaState StateOf(const Schema& schema) {
  SchemaState state;
  while (state.version < schema.version()) state = NextState(state, schema);
  return state;
}

TEST_CASE("Schema: the migrations of this release follow the rules", "[store]") {
  const absl::Status status = CheckMigrations(OwnSchema());
  INFO(status);
  CHECK(status.ok());
  const LaterSchemas later;
  CHECK(CheckMigrations(later.Next()).ok());
  CHECK(CheckMigrations(later.AfterNext()).ok());
}

TEST_CASE("Schema: an expand step may only add what older engines need not fill", "[store]") {
  const std::string good =
      GENERATE("CREATE TABLE t (a TEXT NOT NULL)", "CREATE INDEX i ON sessions (state)",
               "ALTER TABLE models ADD COLUMN c TEXT NOT NULL DEFAULT '', ADD COLUMN d INTEGER",
               "DROP INDEX sessions_active");
  INFO(good);
  CHECK(CheckWith({.sqlite = good.c_str()}, 3).ok());
  const std::string bad =
      GENERATE("ALTER TABLE models DROP COLUMN base_model", "DROP TABLE quotas",
               "ALTER TABLE models RENAME COLUMN base_model TO base",
               "ALTER TABLE models ADD COLUMN c TEXT NOT NULL",
               "ALTER TABLE models ADD COLUMN c TEXT NOT NULL; UPDATE models SET c = DEFAULT",
               "ALTER TABLE models ALTER COLUMN state DROP DEFAULT",
               "alter table models add constraint c check (state > 0)",
               "ALTER TABLE models ALTER COLUMN state TYPE TEXT");
  INFO(bad);
  CHECK(CheckWith({.sqlite = bad.c_str()}, 3).code() == absl::StatusCode::kInvalidArgument);
  CHECK(CheckWith({.postgres = bad.c_str()}, 3).code() == absl::StatusCode::kInvalidArgument);
  CHECK(CheckWith({.sqlite = bad.c_str(), .postgres = bad.c_str(), .unused_since = 2}, 3).ok());
}

TEST_CASE("Schema: an online step makes indexes and nothing else", "[store]") {
  const std::string one = "-- some\nCREATE INDEX i ON sessions (state);\n";
  const std::string two = one + "CREATE TABLE t (a TEXT);";
  CHECK(CheckWith({.postgres = one.c_str(), .is_online = true}, 3).ok());
  CHECK_THAT(std::string(CheckWith({.postgres = two.c_str(), .is_online = true}, 3).message()),
             Catch::Contains("makes no index"));
}

TEST_CASE("Schema: a contract step in the release that stops using the column is too early",
          "[store]") {
  const Migration step = {
      .sqlite = "DROP TABLE quotas", .postgres = "DROP TABLE quotas", .unused_since = 3};
  CHECK_THAT(std::string(CheckWith(step, 3).message()),
             Catch::Contains("unused since protocol 3, in a release of protocol 3"));
  CHECK(CheckWith(step, 4).ok());
}

TEST_CASE("Schema: a newer one is usable until a contract step took away what is needed",
          "[store]") {
  const LaterSchemas later;
  CHECK(CheckSchema({}, OwnSchema()).ok());
  CHECK(CheckSchema(StateOf(OwnSchema()), later.AfterNext()).ok());
  CHECK(CheckSchema(StateOf(later.Next()), OwnSchema()).ok());
  CHECK(CheckSchema(StateOf(later.AfterNext()), later.Next()).ok());
  const absl::Status refused = CheckSchema(StateOf(later.AfterNext()), OwnSchema());
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("start the newer lathe-engine"));
}

}  // namespace
}  // namespace lathe::engine
