#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/describe_store.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {
namespace {

constexpr char kCountVersionTable[] =
    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'";
// The first damage that it finds, or "ok".
constexpr char kReadAll[] = "PRAGMA integrity_check(1)";

absl::StatusOr<StoreDescription> Describe(Connection& connection,
                                          const std::filesystem::path& database, bool is_deep) {
  {
    Query count = connection.Prepare(kCountVersionTable);
    count.Next();
    if (count.Int() == 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s is a database of another program", database.string()));
    }
  }
  const Schema own = OwnSchema();
  const SchemaState state = ReadSchema(connection);
  RETURN_IF_ERROR(CheckSchema(state, own));
  if (is_deep) {
    Query read = connection.Prepare(kReadAll);
    read.Next();
    if (const std::string answer = read.Text(); answer != "ok") {
      return absl::DataLossError(absl::StrFormat("%s is damaged: %s", database.string(), answer));
    }
  }
  return StoreDescription{.text = absl::StrFormat("SQLite, schema %d of %d, %d MiB%s",
                                                  state.version, own.version(),
                                                  std::filesystem::file_size(database) >> 20,
                                                  is_deep ? ", undamaged" : "")};
}

}  // namespace

absl::StatusOr<StoreDescription> DescribeSqlite(const std::filesystem::path& database,
                                                bool is_deep) {
  std::error_code error;
  if (!std::filesystem::exists(database, error)) {
    return StoreDescription{.text = absl::StrFormat("%s will be created", database.string())};
  }
  return Guarded([&]() -> absl::StatusOr<StoreDescription> {
    Connection connection(database.string(), SQLite::OPEN_READONLY);
    return Describe(connection, database, is_deep);
  });
}

}  // namespace lathe::engine
