// Numbered forward migrations of both databases. A migration never changes after a release.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace lathe::engine {

// Version of the schema that this binary writes.
inline constexpr int kSchemaVersion = 15;

// One migration, run in one transaction: `common` first, then the part of the one database; empty:
// no such part. `common` uses SQLite's types and keys, see PostgresDdl.
struct Migration {
  const char* common = "";
  const char* sqlite = "";
  const char* postgres = "";
};

// Migrations from an empty database to kSchemaVersion. The first one makes version 1.
std::span<const Migration> Migrations();

// Returns FailedPrecondition, naming both versions, when the database is newer than this binary.
absl::Status CheckSchemaVersion(int64_t version);

// Each database keeps its version in a table with one row.
inline constexpr char kReadVersion[] = "SELECT version FROM schema_version";
inline constexpr char kWriteVersion[] = "UPDATE schema_version SET version = ?";

}  // namespace lathe::engine
