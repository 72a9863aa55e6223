// Reads the state that a new leader starts with.
#pragma once

#include <set>
#include <string>

#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// Reads everything but the term, as of time `now`. Throws the exceptions of `connection`.
StoredState LoadState(SqlConnection& connection, int64_t now);

// Returns the ids of bodies that must stay: those of unfinished requests, and those that rebuild
// live models. Throws the exceptions of `connection`.
std::set<std::string> LiveBodyIds(SqlConnection& connection);

// Removes all other bodies from the database. Throws the exceptions of `connection`.
void SweepPayloads(SqlConnection& connection);

}  // namespace lathe::engine
