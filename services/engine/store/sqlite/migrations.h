// Migrates a SQLite database to the schema of this binary.
#pragma once

#include "absl/status/status.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Runs each missing migration in a transaction of its own. Returns FailedPrecondition, naming both
// versions, when the database is newer than this binary.
absl::Status Migrate(Connection& connection);

}  // namespace lathe::engine
