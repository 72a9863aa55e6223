// What a new leader reads.
#pragma once

#include <set>
#include <string>

#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// Everything but the term, at time `now`. Throws what `connection` throws.
StoredState LoadState(SqlConnection& connection, int64_t now);

// Bodies of requests that have not ended. Throws what `connection` throws.
std::set<std::string> LiveBodyIds(SqlConnection& connection);

// Removes bodies of requests that have ended or do not exist. Throws what `connection` throws.
void SweepPayloads(SqlConnection& connection);

}  // namespace lathe::engine
