#include "services/engine/store/database_view.h"

#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "services/engine/store/open_store.h"

namespace lathe::engine {
namespace {

// Returns the file of a setting for SQLite, and nothing for other settings.
std::optional<std::filesystem::path> SqliteFile(const std::string& setting,
                                                const std::filesystem::path& data_dir) {
  absl::string_view path = setting;
  if (setting.empty()) return data_dir / "lathe.db";
  if (absl::ConsumePrefix(&path, "sqlite:") && !path.empty()) {
    return std::filesystem::path(std::string(path));
  }
  return std::nullopt;
}

absl::Status WrongSetting(const std::string& setting, const std::filesystem::path& data_dir) {
  return OpenStore(setting, data_dir).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DatabaseView>> ViewDatabase(const std::string& setting,
                                                           const std::filesystem::path& data_dir) {
  if (IsSharedStore(setting)) return ViewPostgres(setting);
  if (const auto file = SqliteFile(setting, data_dir)) return ViewSqlite(*file);
  return WrongSetting(setting, data_dir);
}

absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginRestore(
    const DatabaseCopy& copy, const std::string& setting, const std::filesystem::path& data_dir) {
  const std::string kind = IsSharedStore(setting) ? "postgres" : "sqlite";
  if (kind != copy.kind) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the backup is of a %s database, and store names a %s database", copy.kind, kind));
  }
  if (IsSharedStore(setting)) return BeginPostgresRestore(copy, setting);
  if (const auto file = SqliteFile(setting, data_dir)) return BeginSqliteRestore(copy, *file);
  return WrongSetting(setting, data_dir);
}

}  // namespace lathe::engine
