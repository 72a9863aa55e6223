// Brings a Postgres database to the schema of this binary.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/engine/store/postgres/connection.h"

namespace lathe::engine {

// Each migration is one transaction, and of several engines one migrates while the others wait for
// it: an advisory lock that ends with its connection. FailedPrecondition when the database is newer
// than this binary, naming both versions, or keeps text in another encoding than UTF-8. Throws
// PostgresError.
absl::Status MigratePostgres(PostgresConnection& connection);

// Data definitions in SQLite's words as Postgres takes them: 64-bit numbers, text that sorts by its
// bytes, and in every table a `rowid` that grows.
std::string PostgresDdl(std::string_view sqlite);

}  // namespace lathe::engine
