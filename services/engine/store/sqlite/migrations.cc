#include "services/engine/store/sqlite/migrations.h"

#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/sql/migrations.h"

namespace lathe::engine {
namespace {

constexpr char kCreateVersion[] =
    "CREATE TABLE IF NOT EXISTS schema_version ("
    "  id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL);"
    "INSERT OR IGNORE INTO schema_version (id, version) VALUES (1, 0);";

int64_t ReadVersion(Connection& connection) {
  Query read = connection.Prepare(kReadVersion);
  read.Next();
  return read.Int();
}

}  // namespace

absl::Status Migrate(Connection& connection) {
  return Guarded([&]() -> absl::Status {
    connection.Execute(kCreateVersion);
    const int64_t version = ReadVersion(connection);
    RETURN_IF_ERROR(CheckSchemaVersion(version));
    for (int64_t next = version; next < kSchemaVersion; ++next) {
      SQLite::Transaction transaction(connection.database());
      connection.Execute(Migrations()[next].common);
      connection.Execute(Migrations()[next].sqlite);
      connection.Prepare(kWriteVersion).Bind(next + 1).Run();
      transaction.commit();
      FailPoint("engine.migration.step");
    }
    return absl::OkStatus();
  });
}

}  // namespace lathe::engine
