// Numbered forward migrations of both databases. A migration is never edited after a release.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace lathe::engine {

// Version of the schema this binary writes.
inline constexpr int kSchemaVersion = 11;

// Run in one transaction: `common`, then what one database needs alone; empty: nothing. Types and
// keys in `common` are written as SQLite names them, see PostgresDdl.
struct Migration {
  const char* common = "";
  const char* sqlite = "";
  const char* postgres = "";
};

// From an empty database to kSchemaVersion; the first one makes version 1.
std::span<const Migration> Migrations();

// FailedPrecondition when a database is newer than this binary, naming both versions.
absl::Status CheckSchemaVersion(int64_t version);

// Each database keeps its version in a table of one row.
inline constexpr char kReadVersion[] = "SELECT version FROM schema_version";
inline constexpr char kWriteVersion[] = "UPDATE schema_version SET version = ?";

}  // namespace lathe::engine
