// SQLite connections with their prepared statements.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// A prepared SQLite statement. Every use must end with Reset: otherwise the statement would hold a
// read transaction and block WAL checkpoints.
class SqliteStatement final : public SqlStatement {
 public:
  explicit SqliteStatement(SQLite::Statement statement) : statement_(std::move(statement)) {}

  void Bind(int64_t value) override { statement_.bind(++bound_, value); }
  void Bind(double value) override { statement_.bind(++bound_, value); }
  void Bind(std::string_view text) override { statement_.bind(++bound_, std::string(text)); }
  void BindBytes(std::string_view bytes) override;
  int64_t Run() override { return statement_.exec(); }
  bool Next() override;
  std::string Text() override { return statement_.getColumn(column_++).getString(); }
  std::string Bytes() override;
  int64_t Int() override { return statement_.getColumn(column_++).getInt64(); }
  double Real() override { return statement_.getColumn(column_++).getDouble(); }
  void Reset() override;

 private:
  SQLite::Statement statement_;
  int bound_ = 0;
  int column_ = 0;
};

// One SQLite connection. Methods throw SQLite::Exception; callers wrap them in Guarded().
class Connection final : public SqlConnection {
 public:
  Connection(const std::string& path, int flags);

  SqlDialect dialect() const override { return SqlDialect::kSqlite; }
  Query Prepare(std::string_view sql) override;
  void Execute(const char* sql) { database_.exec(sql); }
  SQLite::Database& database() { return database_; }
  // Returns how many pages this connection has written since the last call.
  int64_t TakePagesWritten();

 private:
  SQLite::Database database_;
  std::map<std::string, SqliteStatement, std::less<>> statements_;
};

// Turns an exception of the SQLite library into a Status.
absl::Status SqlStatus(const SQLite::Exception& error);

// Runs `function`, which returns a Status or StatusOr. Turns exceptions of the library into a
// Status.
template <typename Function>
auto Guarded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const SQLite::Exception& error) {
    return SqlStatus(error);
  }
}

// Thread-safe. Opens a connection when none is idle, and keeps at most kMaxIdle idle ones.
class ReadPool {
 public:
  explicit ReadPool(std::string path) : path_(std::move(path)) {}

  // Runs `read(connection)` on a connection that no other call uses. `read` returns a Status or
  // StatusOr.
  template <typename Read>
  auto Run(const Read& read) {
    return Guarded([&] {
      std::unique_ptr<Connection> connection = Take();
      auto result = read(*connection);
      Give(std::move(connection));
      return result;
    });
  }

 private:
  std::unique_ptr<Connection> Take();
  void Give(std::unique_ptr<Connection> connection);

  static constexpr size_t kMaxIdle = 4;

  const std::string path_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
