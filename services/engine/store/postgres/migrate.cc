#include "services/engine/store/postgres/migrate.h"

#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/sql/migrations.h"

namespace lathe::engine {
namespace {

// The lock's key is "lathe" in bytes.
constexpr char kLock[] = "SELECT pg_advisory_lock(465642940517)";
constexpr char kUnlock[] = "SELECT pg_advisory_unlock(465642940517)";
constexpr char kReadEncoding[] = "SHOW server_encoding";
constexpr char kCreateVersion[] =
    "CREATE TABLE IF NOT EXISTS schema_version ("
    "  id BIGINT PRIMARY KEY CHECK (id = 1), version BIGINT NOT NULL);"
    "INSERT INTO schema_version (id, version) VALUES (1, 0) ON CONFLICT DO NOTHING";

absl::Status CheckEncoding(PostgresConnection& connection) {
  Query read = connection.Prepare(kReadEncoding);
  read.Next();
  const std::string encoding = read.Text();
  if (encoding == "UTF8") return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the encoding of the database is %s, expected UTF8: CREATE DATABASE … ENCODING 'UTF8'",
      encoding));
}

int64_t ReadVersion(PostgresConnection& connection) {
  Query read = connection.Prepare(kReadVersion);
  read.Next();
  return read.Int();
}

absl::Status MigrateLocked(PostgresConnection& connection) {
  connection.Execute(kCreateVersion);
  const int64_t version = ReadVersion(connection);
  RETURN_IF_ERROR(CheckSchemaVersion(version));
  for (int64_t next = version; next < kSchemaVersion; ++next) {
    const Migration& migration = Migrations()[next];
    connection.Begin();
    connection.Execute(absl::StrCat(PostgresDdl(migration.common), ";", migration.postgres));
    connection.Prepare(kWriteVersion).Bind(next + 1).Run();
    connection.Commit();
    FailPoint("engine.migration.step");
  }
  if (version < kSchemaVersion) {
    LogInfo("database migrated", {{"from_version", version}, {"version", kSchemaVersion}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MigratePostgres(PostgresConnection& connection) {
  RETURN_IF_ERROR(CheckEncoding(connection));
  connection.Execute(kLock);
  const absl::Status status = MigrateLocked(connection);
  connection.Execute(kUnlock);
  return status;
}

std::string PostgresDdl(std::string_view sqlite) {
  static const std::regex table(R"((CREATE TABLE \w+ \())");
  const std::string with_rowid = std::regex_replace(
      std::string(sqlite), table, "$1rowid BIGINT GENERATED ALWAYS AS IDENTITY, ");
  return absl::StrReplaceAll(with_rowid, {{" INTEGER PRIMARY KEY AUTOINCREMENT",
                                           " BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
                                          {" WITHOUT ROWID", ""},
                                          {" INTEGER", " BIGINT"},
                                          {" BLOB", " BYTEA"},
                                          {" REAL", " DOUBLE PRECISION"},
                                          {" TEXT", " TEXT COLLATE \"C\""}});
}

}  // namespace lathe::engine
