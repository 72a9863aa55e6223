// Migrates a Postgres database to the schema of this binary.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/engine/store/postgres/connection.h"

namespace lathe::engine {

// Runs each missing migration in a transaction of its own. An advisory lock, which ends with its
// connection, lets one engine migrate while the others wait. Returns FailedPrecondition when the
// database is newer than this binary (the message names both versions) or when its encoding is not
// UTF-8. Throws PostgresError.
absl::Status MigratePostgres(PostgresConnection& connection);

// Translates data definitions from SQLite's dialect to Postgres: numbers of 64 bits, text sorted by
// bytes, and a growing `rowid` in every table.
std::string PostgresDdl(std::string_view sqlite);

}  // namespace lathe::engine
