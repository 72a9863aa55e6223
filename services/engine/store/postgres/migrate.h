// Migrates a Postgres database to the schema of this binary, for the leader only.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/sql/schema.h"

namespace lathe::engine {

// Reads the state of a database that may be empty: its version is then 0. Returns
// FailedPrecondition if its encoding is not UTF-8. Throws the exceptions of libpqxx.
absl::StatusOr<SchemaState> FindSchema(PostgresConnection& connection);

// Keeps other connections from making tables until the transaction ends that the caller has begun.
// Throws the exceptions of libpqxx.
void LockSchema(PostgresConnection& connection);

// Makes the tables of `schema` in an empty database, in the transaction that the caller has begun.
// Throws the exceptions of libpqxx.
void MakeSchema(PostgresConnection& connection, const Schema& schema);

// Called before this engine leads. Returns FailedPrecondition when the database is newer and an
// engine with `schema` cannot use it (see CheckSchema), or when its encoding is not UTF-8. Changes
// a database only if it is empty, or too old for engines to elect a leader: migrates it then. An
// advisory lock, which ends with its connection, lets one engine do so while the others wait.
// Throws the exceptions of libpqxx.
absl::Status PreparePostgres(PostgresConnection& connection, const Schema& schema);

// Longest wait of a step for a lock. Statements of other clients queue up behind such a wait.
inline constexpr char kMigrationLockTimeout[] = "2s";

// Migrates as the leader of `term`, each missing step in a transaction of its own. Leaves the
// indexes of online steps to MakeIndexes. Throws
// an exception of kind kPassing when a step has waited too long for a lock; the steps before stay
// done. Returns Aborted when another engine leads by now, and FailedPrecondition when another
// engine has made the database unusable for this one. Throws the exceptions of libpqxx.
absl::Status MigratePostgres(PostgresConnection& connection, const Schema& schema, int64_t term);

}  // namespace lathe::engine
