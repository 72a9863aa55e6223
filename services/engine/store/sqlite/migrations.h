// Brings a SQLite database to the schema of this binary.
#pragma once

#include "absl/status/status.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Each migration is one transaction. FailedPrecondition when the database is newer than this
// binary, naming both versions.
absl::Status Migrate(Connection& connection);

}  // namespace lathe::engine
