// Numbered forward migrations of both databases, which the files of the folder schema hold. A
// migration never changes after a release.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::engine {

// One step, run in one transaction. The leader runs it, while engines of the release before may
// wait to lead, and after a rollback they use what it has made. So an expand step only adds:
// columns have a DEFAULT, which is also right for rows that those engines write later. A contract
// step removes what no engine has used since an earlier release. CheckMigrations (schema.h) checks
// both.
//
// Tables of both databases have the same columns. In Postgres, numbers have 64 bits, texts are
// sorted by their bytes (COLLATE "C"), and each table also has the growing `rowid` of SQLite.
struct Migration {
  const char* sqlite = "";
  const char* postgres = "";
  // 0: an expand step. Otherwise a contract step, and this is the protocol of the first release
  // that works without what it removes.
  int64_t unused_since = 0;
  // True if the Postgres step only makes indexes. A leader then makes them beside its commits,
  // because an index of millions of rows takes minutes (Store::MakeIndexes).
  bool is_online = false;
};

// Migrations from an empty database to the schema of this binary. The first one makes version 1.
std::span<const Migration> Migrations();

}  // namespace lathe::engine
