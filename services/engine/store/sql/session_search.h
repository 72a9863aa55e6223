// The SQL of session searches.
#pragma once

#include <string>
#include <vector>

#include "services/engine/store/session_query.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// Finds the sessions of one page. Looks at kMaxSearchedSessions at most, in the order of an index:
// that of the tenant's sessions, of one project, or of the active ones. Throws the exceptions of
// `connection`.
SessionPage FindSessions(SqlConnection& connection, const std::string& tenant_id,
                         const SessionQuery& query);

// Returns the statements of all searches, for tests of their plans.
std::vector<std::string> SessionSearchStatements();

}  // namespace lathe::engine
