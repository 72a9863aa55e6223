#include <SQLiteCpp/Backup.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/files/new_file.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/database_view.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr char kCopy[] = "lathe.db";
constexpr size_t kPieceBytes = 1 << 20;
// The copy is one file without a log. The engine turns the log on again.
constexpr char kWithoutLog[] = "PRAGMA journal_mode = DELETE";
// The first damage that it finds, or "ok".
constexpr char kReadCopy[] = "PRAGMA integrity_check(1)";

absl::Status WithPath(const absl::Status& status, const fs::path& path) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrFormat("cannot write %s: no space left on device", path.string()));
}

// A read transaction. Commits of other connections go to the log, which nobody truncates meanwhile.
class SqliteView final : public DatabaseView {
 public:
  explicit SqliteView(const fs::path& database)
      : connection_(database.string(), SQLite::OPEN_READONLY) {
    connection_.Execute("BEGIN");
    schema_ = ReadSchema(connection_);
  }

  const SchemaState& schema() const { return schema_; }

  std::string kind() const override { return "sqlite"; }
  int64_t schema_version() const override { return schema_.version; }

  absl::StatusOr<StoredState> Load() override {
    return Guarded([&]() -> absl::StatusOr<StoredState> {
      return LoadState(connection_, absl::GetCurrentTimeNanos(), /*has_indexes=*/true);
    });
  }

  absl::StatusOr<std::vector<std::string>> BodyFiles() override {
    return Guarded([&]() -> absl::StatusOr<std::vector<std::string>> {
      const std::set<std::string> ids = LiveBodiesOutside(connection_);
      return std::vector<std::string>(ids.begin(), ids.end());
    });
  }

  absl::StatusOr<bool> HasObjectStore() override {
    return Guarded(
        [&]() -> absl::StatusOr<bool> { return HasSecret(connection_, kObjectStoreId); });
  }

  absl::StatusOr<std::vector<std::string>> CopyTo(const fs::path& dir) override {
    const fs::path path = dir / kCopy;
    const absl::Status status = Guarded([&]() -> absl::Status {
      Connection copy(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
      // All pages in one step, under the read transaction of the source.
      const int outcome = SQLite::Backup(copy.database(), connection_.database()).executeStep(-1);
      if (outcome != SQLITE_DONE) return NotCopied(path, outcome);
      return Check(copy, path);
    });
    RETURN_IF_ERROR(WithPath(status, path));
    RETURN_IF_ERROR(SyncDirectory(dir));
    return std::vector<std::string>{kCopy};
  }

 private:
  static absl::Status NotCopied(const fs::path& path, int outcome) {
    return absl::UnavailableError(absl::StrFormat("the database was not copied to %s: %s",
                                                  path.string(), sqlite3_errstr(outcome)));
  }

  static absl::Status Check(Connection& copy, const fs::path& path) {
    copy.Execute(kWithoutLog);
    Query read = copy.Prepare(kReadCopy);
    read.Next();
    const std::string answer = read.Text();
    if (answer == "ok") return absl::OkStatus();
    return absl::DataLossError(
        absl::StrFormat("the database is damaged: %s holds %s", path.string(), answer));
  }

  Connection connection_;
  SchemaState schema_;
};

absl::Status CheckRestorable(const DatabaseCopy& copy, const fs::path& database) {
  std::error_code error;
  // A log without its database would be applied to the restored one.
  for (const char* const suffix : {"", "-wal", "-journal"}) {
    const std::string path = database.string() + suffix;
    if (!fs::exists(path, error)) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s exists: restore into a new place", path));
  }
  return Guarded([&] {
    Connection connection((copy.dir / kCopy).string(), SQLite::OPEN_READONLY);
    return CheckSchema(ReadSchema(connection), OwnSchema());
  });
}

// Renames `part` to `database`. Replaces no database that somebody has made meanwhile, as a plain
// rename would.
absl::Status NameDatabase(const fs::path& part, const fs::path& database) {
  bool is_named =
      renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, database.c_str(), RENAME_NOREPLACE) == 0;
  // Some file systems, such as NFS, have only links for this.
  if (!is_named && (errno == EINVAL || errno == ENOSYS || errno == EPERM || errno == EOPNOTSUPP)) {
    is_named = link(part.c_str(), database.c_str()) == 0;
  }
  const int error = errno;
  std::error_code ignored;
  fs::remove(part, ignored);
  if (is_named) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrFormat("cannot make %s", database.string()));
}

absl::Status Restore(const DatabaseCopy& copy, const fs::path& database) {
  // A name that no engine opens, until the file is complete.
  const fs::path part = database.string() + ".restored";
  std::error_code error;
  fs::remove(part, error);
  NewFile file(part);
  RETURN_IF_ERROR(file.Open());
  std::ifstream source(copy.dir / kCopy, std::ios::binary);
  std::string piece(kPieceBytes, '\0');
  do {
    source.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    RETURN_IF_ERROR(file.Write({piece.data(), static_cast<size_t>(source.gcount())}));
  } while (source);
  if (!source.eof()) {
    return absl::DataLossError(absl::StrFormat("cannot read %s", (copy.dir / kCopy).string()));
  }
  RETURN_IF_ERROR(file.Sync());
  RETURN_IF_ERROR(NameDatabase(part, database));
  const absl::Status status = SyncDirectory(fs::absolute(database).parent_path());
  if (!status.ok()) fs::remove(database, error);
  return status;
}

class SqliteRestore final : public DatabaseRestore {
 public:
  SqliteRestore(DatabaseCopy copy, fs::path database)
      : copy_(std::move(copy)), database_(std::move(database)) {}

  absl::Status KeepAlive() override { return absl::OkStatus(); }
  absl::Status Fill() override { return Restore(copy_, database_); }

 private:
  const DatabaseCopy copy_;
  const fs::path database_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DatabaseView>> ViewSqlite(const fs::path& database) {
  std::error_code error;
  if (!fs::exists(database, error)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("there is no database %s", database.string()));
  }
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<DatabaseView>> {
    auto view = std::make_unique<SqliteView>(database);
    RETURN_IF_ERROR(CheckReadable(view->schema(), OwnSchema()));
    return view;
  });
}

absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginSqliteRestore(const DatabaseCopy& copy,
                                                                    const fs::path& database) {
  RETURN_IF_ERROR(CheckRestorable(copy, database));
  return std::make_unique<SqliteRestore>(copy, database);
}

}  // namespace lathe::engine
