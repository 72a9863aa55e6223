// The schema of a release, and the state of a database's schema. Two releases share a database
// while a service is upgraded, and after a rollback (docs/upgrades.md). So the database stores the
// oldest protocol whose engines can use it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "services/engine/store/sql/migrations.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// First version in which engines elect a leader. Before, nothing can be asked for leadership.
inline constexpr int64_t kLeaseVersion = 10;
// First version whose steps follow the rules of CheckMigrations. It also stores the protocol.
inline constexpr int64_t kProtocolVersion = 16;

// Steps and protocol of one release.
struct Schema {
  std::span<const Migration> migrations;
  int64_t protocol = 0;

  int64_t version() const { return static_cast<int64_t>(migrations.size()); }
};

// Schema of this binary.
Schema OwnSchema();

struct SchemaState {
  int64_t version = 0;
  // Oldest protocol whose engines can use the database; 0: all older ones.
  int64_t min_protocol = 0;
};

// Returns OK if an engine with `own` schema can use the database. It can use an older schema after
// it has migrated it, and a newer one unless a contract step took away what it needs. Returns
// FailedPrecondition otherwise, naming both versions and protocols.
absl::Status CheckSchema(const SchemaState& state, const Schema& own);

// Returns FailedPrecondition unless an engine with `own` schema can read the database as it is,
// without a migration.
absl::Status CheckReadable(const SchemaState& state, const Schema& own);

// Returns the state after the step that follows `state`.
SchemaState NextState(const SchemaState& state, const Schema& schema);

// Returns InvalidArgument that names the first step which would break engines of the release
// before: an expand step that removes or renames something, or adds a column that their inserts
// leave empty; a contract step that comes too early; or an online step that does more than making
// indexes.
absl::Status CheckMigrations(const Schema& schema);

// Read and write the table schema_version, which has one row. They throw the exceptions of
// `connection`.
SchemaState ReadSchema(SqlConnection& connection);
void WriteSchema(SqlConnection& connection, const SchemaState& state);

}  // namespace lathe::engine
