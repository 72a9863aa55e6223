// What a new leader reads.
#pragma once

#include <set>
#include <string>

#include "services/engine/store/rows.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Everything but the term. Throws SQLite::Exception.
StoredState LoadState(Connection& connection);

// Bodies of requests that have not ended. Throws SQLite::Exception.
std::set<std::string> LiveBodyIds(Connection& connection);

// Removes bodies of requests that have ended or do not exist. Throws SQLite::Exception.
void SweepPayloads(Connection& connection);

}  // namespace lathe::engine
