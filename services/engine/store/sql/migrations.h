// Numbered forward migrations of both databases. A migration never changes after a release.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::engine {

// Version of the schema that this binary writes.
inline constexpr int kSchemaVersion = 18;

// One step, run in one transaction: `common` first, then the part of the one database; empty: no
// such part. `common` uses SQLite's types and keys, see PostgresDdl. The leader runs it, while
// engines of the release before may wait to lead, and after a rollback they use what it has made.
// So an expand step only adds: columns have a DEFAULT, which is also right for rows that those
// engines write later. A contract step removes what no engine has used since an earlier release.
// CheckMigrations (schema.h) checks both.
struct Migration {
  const char* common = "";
  const char* sqlite = "";
  const char* postgres = "";
  // 0: an expand step. Otherwise a contract step, and this is the protocol of the first release
  // that works without what it removes.
  int64_t unused_since = 0;
};

// Migrations from an empty database to kSchemaVersion. The first one makes version 1.
std::span<const Migration> Migrations();

}  // namespace lathe::engine
