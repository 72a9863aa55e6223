// One SQLite connection with its prepared statements, and a cursor that binds and reads in order.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::engine {

// A use of a prepared statement: Bind, then Run or Next. Resets the statement at its end, because
// an open one would hold a read transaction and keep the WAL from being checkpointed.
class Query {
 public:
  explicit Query(SQLite::Statement& statement) : statement_(statement) {}
  Query(const Query&) = delete;
  ~Query();

  template <typename... Values>
  Query& Bind(const Values&... values) {
    (BindOne(values), ...);
    return *this;
  }
  // Not copied: must live until the query ends.
  Query& BindBytes(std::string_view bytes);

  // Runs a statement without result rows; returns the number of changed rows.
  int64_t Run();
  // Steps to the next row; columns are then read from the first on.
  bool Next();

  std::string Text();
  std::string Bytes();
  int64_t Int();
  double Real();
  bool Bool() { return Int() != 0; }

 private:
  template <typename Value>
  void BindOne(const Value& value) {
    if constexpr (std::is_floating_point_v<Value>) {
      statement_.bind(++bound_, static_cast<double>(value));
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      statement_.bind(++bound_, static_cast<int64_t>(value));
    } else {
      statement_.bind(++bound_, std::string(value));
    }
  }

  SQLite::Statement& statement_;
  int bound_ = 0;
  int column_ = 0;
};

// Not thread-safe. Methods throw SQLite::Exception; callers wrap them in Guarded().
class Connection {
 public:
  Connection(const std::string& path, int flags);

  // Statements are prepared once and kept by their text.
  Query Prepare(std::string_view sql);
  void Execute(const char* sql) { database_.exec(sql); }
  SQLite::Database& database() { return database_; }

 private:
  SQLite::Database database_;
  std::map<std::string, SQLite::Statement, std::less<>> statements_;
};

// What an exception of the library means.
absl::Status SqlStatus(const SQLite::Exception& error);

// Runs `function` (returning Status or StatusOr) and turns exceptions of the library into Status.
template <typename Function>
auto Guarded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const SQLite::Exception& error) {
    return SqlStatus(error);
  }
}

}  // namespace lathe::engine
