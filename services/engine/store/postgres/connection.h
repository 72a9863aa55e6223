// One Postgres connection of libpqxx with its prepared statements.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "services/engine/store/postgres/connection_policy.h"
#include "services/engine/store/postgres/libpqxx.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

class PostgresConnection;

// Rewrites SQLite's parameters for Postgres: `?2` becomes `$2`. A plain `?` gets the number after
// the highest one before it, as in SQLite.
std::string WithDollars(std::string_view sql);

// A prepared statement of one PostgresConnection. Values travel as text, except bytes.
class PostgresStatement final : public SqlStatement {
 public:
  // `connection` must outlive this.
  PostgresStatement(PostgresConnection& connection, std::string name)
      : connection_(connection), name_(std::move(name)) {}

  void Bind(int64_t value) override;
  void Bind(double value) override;
  void Bind(std::string_view text) override;
  // At most once in a statement: libpqxx must know the types of a call.
  void BindBytes(std::string_view bytes) override;
  int64_t Run() override;
  bool Next() override;
  std::string Text() override;
  std::string Bytes() override;
  int64_t Int() override;
  double Real() override;
  void Reset() override;

 private:
  pqxx::result Execute();
  pqxx::field NextField();

  PostgresConnection& connection_;
  const std::string name_;
  std::vector<std::string> texts_;
  std::optional<pqxx::binarystring> bytes_;
  size_t num_before_bytes_ = 0;
  std::optional<pqxx::result> rows_;
  pqxx::result::size_type next_row_ = 0;
  std::optional<pqxx::row> row_;
  pqxx::row::size_type next_column_ = 0;
};

// One connection to the server. Not thread-safe. Methods throw the exceptions of libpqxx. When
// one of them has thrown, the owner closes the connection, and that rolls the transaction back.
class PostgresConnection final : public SqlConnection {
 public:
  using Options = ConnectionOptions;

  explicit PostgresConnection(const Options& options);
  // Never waits for the server.
  ~PostgresConnection() override;

  // Sets a time, by SteadyNow, after which a silent server counts as lost even if its time-outs
  // have not passed.
  void WaitUntil(absl::Time deadline) { deadline_ = deadline; }

  SqlDialect dialect() const override { return SqlDialect::kPostgres; }
  Query Prepare(std::string_view sql) override;
  // Runs statements without parameters, all in one message.
  void Execute(const std::string& sql);
  // Returns the process id of the server's session. It uses no prepared statement, so that it also
  // works through a connection pooler.
  int64_t SessionPid();
  void Begin();
  // Begins one that only reads, and sees the database as of its first statement.
  void BeginSnapshot();
  // Commits the transaction. Throws pqxx::in_doubt_error if the outcome is unknown.
  void Commit();

  // Gives `take` the lines of COPY … TO STDOUT, without their ends. `columns`: names as SQL has
  // them. Inside a transaction.
  void CopyOut(const std::string& table, const std::vector<std::string>& columns,
               const std::function<void(const std::string&)>& take);
  // Sends such lines, until `next` returns false.
  void CopyIn(const std::string& table, const std::vector<std::string>& columns,
              const std::function<bool(std::string&)>& next);

 private:
  friend class GroupCommit;
  friend class PostgresStatement;

  // Opens the connection when made. libpqxx makes only connections whose policy takes no more than
  // a URL.
  class Session final : public pqxx::connection_base {
   public:
    explicit Session(ConnectionPolicy& policy);
    ~Session() { close(); }
  };

  // The transaction that was begun, or one in which each statement is a transaction of its own.
  pqxx::transaction_base& transaction();
  // Runs `call`, which may wait for the server. Says why when the connection was lost.
  template <typename Call>
  auto Guard(const Call& call) -> decltype(call());

  ConnectionPolicy policy_;
  absl::Time deadline_;
  Session session_;
  std::unique_ptr<pqxx::transaction_base> transaction_;
  std::map<std::string, std::unique_ptr<PostgresStatement>, std::less<>> statements_;
};

}  // namespace lathe::engine
