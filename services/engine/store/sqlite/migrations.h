// Numbered forward migrations. A migration is never edited after a release.
#pragma once

#include "absl/status/status.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Version of the schema this binary writes.
inline constexpr int kSchemaVersion = 8;

// Brings the database to kSchemaVersion; each migration is one transaction. FailedPrecondition
// when the database is newer than this binary, naming both versions.
absl::Status Migrate(Connection& connection);

}  // namespace lathe::engine
