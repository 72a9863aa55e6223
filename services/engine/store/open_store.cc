#include "services/engine/store/open_store.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/postgres/postgres_store.h"
#include "services/engine/store/sqlite/sqlite_store.h"

namespace lathe::engine {
namespace {

absl::StatusOr<std::unique_ptr<Store>> OpenSqlite(const std::filesystem::path& database,
                                                  const std::filesystem::path& data_dir) {
  return SqliteStore::Open({.database = database, .bodies_dir = data_dir / "bodies"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& setting,
                                                 const std::filesystem::path& data_dir) {
  if (setting.empty()) return OpenSqlite(data_dir / "lathe.db", data_dir);
  absl::string_view path = setting;
  if (absl::ConsumePrefix(&path, "sqlite:") && !path.empty()) {
    return OpenSqlite(std::string(path), data_dir);
  }
  if (IsSharedStore(setting)) {
    return PostgresStore::Open({.url = setting});
  }
  const std::vector<std::string> parts = absl::StrSplit(setting, absl::MaxSplits(':', 1));
  return absl::InvalidArgumentError(
      absl::StrCat("store is '", parts[0], ":…', expected sqlite:PATH or postgres://…"));
}

bool IsSharedStore(const std::string& setting) {
  return absl::StartsWith(setting, "postgres://") || absl::StartsWith(setting, "postgresql://");
}

}  // namespace lathe::engine
