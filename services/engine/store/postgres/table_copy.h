// Tables of a Postgres database as files, in the text format of COPY. No program of the server is
// needed, so the server may be newer than this machine's Postgres packages.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/sql/schema.h"

namespace lathe::engine {

// Returns true if the connection's schema has no table.
bool HasNoTables(PostgresConnection& connection);

// Writes a file for each table of the connection's schema, and one with the sequences. The caller
// has begun a snapshot. Throws the exceptions of libpqxx.
absl::Status WriteTables(PostgresConnection& connection, const std::filesystem::path& dir);

// Makes the tables of `schema` and fills them from such files, in one transaction. Throws the
// exceptions of libpqxx.
absl::Status ReadTables(PostgresConnection& connection, const Schema& schema,
                        const std::filesystem::path& dir);

}  // namespace lathe::engine
