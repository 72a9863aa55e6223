// Interfaces that the stores' SQL runs on: a connection with prepared statements, and a cursor that
// binds and reads in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace lathe::engine {

// A prepared statement of one connection. One Query at a time uses it. Methods throw the exceptions
// of the connection.
class SqlStatement {
 public:
  virtual ~SqlStatement() = default;

  virtual void Bind(int64_t value) = 0;
  virtual void Bind(double value) = 0;
  virtual void Bind(std::string_view text) = 0;
  // The bytes are not copied: they must live until the query ends.
  virtual void BindBytes(std::string_view bytes) = 0;

  virtual int64_t Run() = 0;
  virtual bool Next() = 0;
  virtual std::string Text() = 0;
  virtual std::string Bytes() = 0;
  virtual int64_t Int() = 0;
  virtual double Real() = 0;

  // Ends the use: drops the bindings and rows. Does not throw.
  virtual void Reset() = 0;
};

// One use of a prepared statement: Bind, then Run or Next.
class Query {
 public:
  explicit Query(SqlStatement& statement) : statement_(statement) {}
  Query(const Query&) = delete;
  ~Query() { statement_.Reset(); }

  template <typename... Values>
  Query& Bind(const Values&... values) {
    (BindOne(values), ...);
    return *this;
  }
  // The bytes are not copied: they must live until the query ends.
  Query& BindBytes(std::string_view bytes) {
    statement_.BindBytes(bytes);
    return *this;
  }

  // Runs a statement without result rows; returns the number of changed rows, or kDeferred.
  int64_t Run() { return statement_.Run(); }
  // Steps to the next row. The column readers then start at the first column.
  bool Next() { return statement_.Next(); }

  std::string Text() { return statement_.Text(); }
  std::string Bytes() { return statement_.Bytes(); }
  int64_t Int() { return statement_.Int(); }
  double Real() { return statement_.Real(); }
  bool Bool() { return Int() != 0; }

 private:
  template <typename Value>
  void BindOne(const Value& value) {
    if constexpr (std::is_floating_point_v<Value>) {
      statement_.Bind(static_cast<double>(value));
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      statement_.Bind(static_cast<int64_t>(value));
    } else {
      statement_.Bind(std::string_view(value));
    }
  }

  SqlStatement& statement_;
};

// Language of a database, for the few statements that cannot suit both.
enum class SqlDialect { kSqlite, kPostgres };

// A database connection. Not thread-safe. The SQL must suit both SQLite and Postgres. It writes
// parameters in SQLite's form: `?` and `?2`.
class SqlConnection {
 public:
  // Result of Run when the connection sends statements in a batch. Errors then show at the end of
  // the transaction.
  static constexpr int64_t kDeferred = -1;

  virtual ~SqlConnection() = default;

  virtual SqlDialect dialect() const = 0;

  // Returns a statement for `sql`. Statements are prepared once and cached by their text.
  virtual Query Prepare(std::string_view sql) = 0;
};

}  // namespace lathe::engine
