// Deletes what retention no longer keeps, in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/store/sql/sql_connection.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Deletes one piece inside the caller's transaction and advances `pass`: at most kMaxPurgedRows
// rows of a table. A piece begins where an index says that something is due. Returns the number of
// deleted rows. Throws the exceptions of `connection`.
int64_t DeletePiece(SqlConnection& connection, PurgePass& pass);

// Returns every statement that DeletePiece runs, for tests of their plans.
std::vector<std::string> PurgeStatements();

}  // namespace lathe::engine
