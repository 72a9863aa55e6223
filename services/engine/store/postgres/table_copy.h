// Tables of a Postgres database as files, in the text format of COPY. No program of the server is
// needed, so the server may be newer than this machine's Postgres packages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/sql/schema.h"

namespace lathe::engine {

// Returns true if the connection's schema has no table.
bool HasNoTables(PostgresConnection& connection);

// Returns the names of the tables that MakeSchema makes.
std::set<std::string, std::less<>> TablesOf(const Schema& schema);

// Writes a file for each table that the schema of this version has, and one with the sequences.
// Returns their names. Logs the names of other tables. The caller has begun a snapshot. Throws the
// exceptions of libpqxx.
absl::StatusOr<std::vector<std::string>> WriteTables(PostgresConnection& connection,
                                                     int64_t schema_version,
                                                     const std::filesystem::path& dir);

// Returns DataLoss if a table of the connection has no such file. Logs the names of files that have
// no table. Throws the exceptions of libpqxx.
absl::Status CheckTables(PostgresConnection& connection, const std::filesystem::path& dir);

// Fills all tables from such files, in the transaction that the caller has begun. Throws the
// exceptions of libpqxx.
absl::Status ReadTables(PostgresConnection& connection, const std::filesystem::path& dir);

}  // namespace lathe::engine
