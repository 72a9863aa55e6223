// Both databases have the same tables, columns, indexes and triggers, although each has SQL files
// of its own.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/sqlite/connection.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

// A column: table, name, "null" or "not null", its type in Postgres and its default.
constexpr char kSqliteColumns[] =
    "SELECT tables.name || '.' || columns.name"
    "  || CASE WHEN columns.\"notnull\" OR columns.pk > 0 THEN ' not null ' ELSE ' null ' END"
    "  || CASE columns.type WHEN 'INTEGER' THEN 'bigint' WHEN 'TEXT' THEN 'text'"
    "       WHEN 'BLOB' THEN 'bytea' WHEN 'REAL' THEN 'double precision' ELSE '?' END"
    "  || coalesce(' = ' || columns.dflt_value, '')"
    " FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns"
    " WHERE tables.type = 'table' AND tables.name <> 'sqlite_sequence'";
constexpr char kPostgresColumns[] =
    "SELECT table_name || '.' || column_name"
    "  || CASE is_nullable WHEN 'NO' THEN ' not null ' ELSE ' null ' END || data_type"
    "  || coalesce(' = ' || replace(replace(column_default, '::text', ''), '''-1''::integer', "
    "'-1'),"
    "       '')"
    " FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND column_name <> 'rowid'";

// Indexes that no key of a table makes, and triggers, each with its table.
constexpr char kSqliteNames[] =
    "SELECT type || ' ' || name || ' of ' || tbl_name FROM sqlite_master"
    " WHERE type IN ('index', 'trigger') AND sql IS NOT NULL";
constexpr char kPostgresNames[] =
    "SELECT 'index ' || indexname || ' of ' || tablename FROM pg_indexes"
    " WHERE schemaname = current_schema() AND indexname NOT LIKE '%_key'"
    "  AND indexname NOT LIKE '%_pkey' UNION ALL "
    "SELECT 'trigger ' || tgname || ' of ' || relname FROM pg_trigger"
    " JOIN pg_class ON pg_class.oid = tgrelid"
    " WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace";

// Columns that the files of Postgres must say more about than those of SQLite.
constexpr char kWrongTexts[] =
    "SELECT table_name || '.' || column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND data_type = 'text'"
    "  AND collation_name IS DISTINCT FROM 'C'";
constexpr char kTablesWithoutRowid[] =
    "SELECT table_name::text FROM information_schema.tables AS t"
    " WHERE table_schema = current_schema() AND table_name <> 'schema_version' AND NOT EXISTS"
    "  (SELECT 1 FROM information_schema.columns AS c WHERE c.table_schema = t.table_schema"
    "   AND c.table_name = t.table_name AND c.column_name = 'rowid' AND c.data_type = 'bigint'"
    "   AND c.is_identity = 'YES')";

std::string Lines(SqlConnection& connection, const std::string& sql) {
  std::set<std::string> lines;
  Query query = connection.Prepare(sql);
  while (query.Next()) lines.insert(query.Text());
  return absl::StrJoin(lines, "\n");
}

TEST_CASE("PostgresSchema: both databases have the same tables, columns, indexes and triggers",
          "[store]") {
  TempDir dir;
  const SqliteStore::Options options{.database = dir.path() / "lathe.db",
                                     .bodies_dir = dir.path() / "bodies"};
  REQUIRE(SqliteStore::Open(options).ok());
  Connection sqlite(options.database.string(), SQLite::OPEN_READONLY);
  const PostgresHarness harness;
  PostgresConnection postgres = harness.database().Connect();
  const std::string columns = Lines(sqlite, kSqliteColumns);
  CHECK(columns.size() > 1000);
  CHECK_THAT(columns, !Catch::Contains("?"));
  CHECK(Lines(postgres, kPostgresColumns) == columns);
  CHECK(Lines(postgres, kPostgresNames) == Lines(sqlite, kSqliteNames));
}

TEST_CASE("PostgresSchema: texts are sorted by bytes, and each table has a growing rowid",
          "[store]") {
  const PostgresHarness harness;
  PostgresConnection postgres = harness.database().Connect();
  CHECK(Lines(postgres, kWrongTexts).empty());
  CHECK(Lines(postgres, kTablesWithoutRowid).empty());
}

}  // namespace
}  // namespace lathe::engine
