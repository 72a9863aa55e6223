#include "services/engine/store/postgres/migrate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

// The lock's key is "lathe" in bytes.
constexpr char kLock[] = "SELECT pg_advisory_lock(465642940517)";
constexpr char kLockInTransaction[] = "SELECT pg_advisory_xact_lock(465642940517)";
constexpr char kUnlock[] = "SELECT pg_advisory_unlock(465642940517)";
// Finds the table of the version: 1 or 0.
constexpr char kFindVersion[] =
    "SELECT (to_regclass('schema_version') IS NOT NULL)::integer::bigint";
constexpr char kShareLeader[] = "SELECT term FROM leader FOR SHARE";
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

// Also keeps another engine from taking the lease until the transaction ends.
absl::Status CheckLeads(PostgresConnection& connection, int64_t term) {
  Query read = connection.Prepare(kShareLeader);
  read.Next();
  const int64_t current_term = read.Int();
  if (current_term == term) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrFormat("migration under term %d, the leader has term %d", term, current_term));
}

// Runs the missing steps. `term` 0: the database has no leader yet.
absl::Status RunSteps(PostgresConnection& connection, const Schema& schema, int64_t term) {
  SchemaState state = ReadSchema(connection);
  RETURN_IF_ERROR(CheckSchema(state, schema));
  const int64_t from_version = state.version;
  while (state.version < schema.version()) {
    const Migration& step = schema.migrations[state.version];
    state = NextState(state, schema);
    connection.Begin();
    connection.Execute(absl::StrCat("SET LOCAL lock_timeout = '", kMigrationLockTimeout, "'"));
    if (term > 0) RETURN_IF_ERROR(CheckLeads(connection, term));
    // An empty database gets everything at once.
    if (term == 0 || !step.is_online) connection.Execute(step.postgres);
    WriteSchema(connection, state);
    connection.Commit();
    FailPoint("engine.migration.step");
  }
  if (from_version < schema.version()) {
    LogInfo("database migrated", {{"from_version", from_version}, {"version", schema.version()}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SchemaState> FindSchema(PostgresConnection& connection) {
  RETURN_IF_ERROR(CheckEncoding(connection));
  {
    Query find = connection.Prepare(kFindVersion);
    find.Next();
    if (find.Int() == 0) return SchemaState{};
  }
  return ReadSchema(connection);
}

void LockSchema(PostgresConnection& connection) { connection.Execute(kLockInTransaction); }

void MakeSchema(PostgresConnection& connection, const Schema& schema) {
  connection.Execute(kCreateVersion);
  for (const Migration& step : schema.migrations) connection.Execute(step.postgres);
}

absl::Status PreparePostgres(PostgresConnection& connection, const Schema& schema) {
  ASSIGN_OR_RETURN(const SchemaState state, FindSchema(connection));
  if (state.version >= kLeaseVersion) return CheckSchema(state, schema);
  connection.Execute(kLock);
  connection.Execute(kCreateVersion);
  const absl::Status status = RunSteps(connection, schema, /*term=*/0);
  connection.Execute(kUnlock);
  return status;
}

absl::Status MigratePostgres(PostgresConnection& connection, const Schema& schema, int64_t term) {
  const SchemaState state = ReadSchema(connection);
  if (state.version >= schema.version()) return CheckSchema(state, schema);
  // An engine of release 0.1.0 that starts now would migrate to its version, without the lease. A
  // hanging engine keeps the lock, so later leaders must not need it.
  const bool locks = state.version < kProtocolVersion;
  if (locks) connection.Execute(kLock);
  const absl::Status status = RunSteps(connection, schema, term);
  // An error leaves its transaction open.
  if (locks && status.ok()) connection.Execute(kUnlock);
  return status;
}

}  // namespace lathe::engine
