#include "services/engine/store/sqlite/connection.h"

#include <sqlite3.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/logging/logging.h"

namespace lathe::engine {

namespace {

// Readers never wait in WAL mode. The writer may have to wait for a checkpoint of the CLI.
constexpr int kBusyTimeoutMs = 2000;

// SQLite counts its memory by default, under one mutex of the process. A commit would wait for
// searches there, whose threads have a low priority. Returns the path.
const std::string& WithoutMemoryCount(const std::string& path) {
  static const int configured = [] {
    const int result = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    // Refused once SQLite has started, as in tests that open a database by other means.
    if (result != SQLITE_OK) LogWarn("SQLite counts its memory", {{"code", result}});
    return result;
  }();
  static_cast<void>(configured);
  return path;
}

}  // namespace

void SqliteStatement::Reset() {
  statement_.tryReset();
  bound_ = 0;
  try {
    statement_.clearBindings();
  } catch (const SQLite::Exception&) {
    // Bindings are set again by the next use.
  }
}

void SqliteStatement::BindBytes(std::string_view bytes) {
  // SQLite would bind a null pointer as NULL.
  statement_.bindNoCopy(++bound_, static_cast<const void*>(bytes.data() ? bytes.data() : ""),
                        static_cast<int>(bytes.size()));
}

bool SqliteStatement::Next() {
  column_ = 0;
  return statement_.executeStep();
}

std::string SqliteStatement::Bytes() {
  const SQLite::Column column = statement_.getColumn(column_++);
  const void* data = column.getBlob();
  return std::string(static_cast<const char*>(data), column.getBytes());
}

Connection::Connection(const std::string& path, int flags)
    : database_(WithoutMemoryCount(path), flags, kBusyTimeoutMs) {}

Query Connection::Prepare(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    std::string text(sql);
    SQLite::Statement statement(database_, text);
    found = statements_.emplace(std::move(text), std::move(statement)).first;
  }
  return Query(found->second);
}

int64_t Connection::TakePagesWritten() {
  int written = 0;
  int highest = 0;
  sqlite3_db_status(database_.getHandle(), SQLITE_DBSTATUS_CACHE_WRITE, &written, &highest,
                    /*resetFlg=*/1);
  return written;
}

absl::Status SqlStatus(const SQLite::Exception& error) {
  const std::string message =
      absl::StrCat("database: ", error.what(), " (code ", error.getExtendedErrorCode(), ")");
  switch (error.getErrorCode()) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    default:
      return absl::InternalError(message);
  }
}

std::unique_ptr<Connection> ReadPool::Take() {
  {
    absl::MutexLock lock(&mu_);
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>(path_, SQLite::OPEN_READONLY);
}

void ReadPool::Give(std::unique_ptr<Connection> connection) {
  absl::MutexLock lock(&mu_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

}  // namespace lathe::engine
