// Requests and bodies that a new leader needs. An index finds each kind of them, so the time of a
// start follows their number and not that of all rows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// Sessions that are live until everything they held is freed.
inline constexpr char kLiveSessions[] =
    "(SELECT session_id FROM sessions WHERE state < 2 UNION "
    "SELECT session_id FROM models WHERE state < 2)";
// Condition on rows of snapshots and versions, where `live` is kLiveSessions.
inline constexpr char kOfLiveModel[] =
    " WHERE model_id IN (SELECT model_id FROM models JOIN live USING (session_id))";

// Requests that have not ended, and ended ones that somebody may still ask for, as of time `now`.
// They are sorted by the time of their acceptance. `has_indexes`: whether the indexes of step 19
// are there. Without them it reads all requests once. Throws the exceptions of `connection`.
std::vector<RequestRow> ReadNeededRequests(SqlConnection& connection, int64_t now,
                                           bool has_indexes);

// Returns the ids of bodies that must stay: those of unfinished requests, and those that rebuild
// live models. Throws the exceptions of `connection`.
std::set<std::string> LiveBodyIds(SqlConnection& connection);

// Returns those of them that are in no row, because they are files. Throws the exceptions of
// `connection`.
std::set<std::string> LiveBodiesOutside(SqlConnection& connection);

// Removes all other bodies from the database. Throws the exceptions of `connection`.
void SweepPayloads(SqlConnection& connection);

// Returns every statement of the functions above, for tests of their plans.
std::vector<std::string> NeededRowsStatements(SqlDialect dialect);

}  // namespace lathe::engine
