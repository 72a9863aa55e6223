// Deletes what retention no longer keeps, in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/engine/store/sql/sql_connection.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Deletes one piece inside the caller's transaction and advances `pass`: at most `max_rows` rows of
// a table. A piece begins where an index says that something is due. Returns the number of deleted
// rows. Throws the exceptions of `connection`.
int64_t DeletePiece(SqlConnection& connection, int64_t max_rows, PurgePass& pass);

// Number of rows that a piece has at least, so that a purge ends even on a slow disk.
inline constexpr int64_t kMinPurgedRows = 50;
// Time that a piece should take while commits wait for it.
inline constexpr absl::Duration kPieceTime = absl::Milliseconds(8);

// Returns the size of the next piece when a piece of `max_rows` rows took `took`. The size at most
// doubles or halves, because one time says little: a sync of the disk may have been slow.
int64_t NextPieceRows(int64_t max_rows, absl::Duration took);

// Returns every statement that DeletePiece runs, for tests of their plans.
std::vector<std::string> PurgeStatements();

}  // namespace lathe::engine
