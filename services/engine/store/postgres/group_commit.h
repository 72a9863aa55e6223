// The transaction of a group commit, sent in two round trips.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

class GroupCommit;

// A prepared statement of one GroupCommit, which can only run. Values travel in the server's binary
// format. Numbers are the exception: they are sent as text, because the server infers their width.
class GroupStatement final : public SqlStatement {
 public:
  // `group` must outlive this.
  GroupStatement(GroupCommit& group, std::string name, std::string sql)
      : group_(group), name_(std::move(name)), sql_(std::move(sql)) {}

  void Bind(int64_t value) override;
  void Bind(double value) override;
  void Bind(std::string_view text) override;
  void BindBytes(std::string_view bytes) override;
  int64_t Run() override;
  // A group commit reads no rows: these throw.
  bool Next() override;
  std::string Text() override;
  std::string Bytes() override;
  int64_t Int() override;
  double Real() override;
  void Reset() override { values_.clear(); }

 private:
  friend class GroupCommit;

  struct Value {
    std::string owned;
    std::string_view borrowed;
    bool is_borrowed = false;
    bool is_binary = false;
  };

  GroupCommit& group_;
  const std::string name_;
  const std::string sql_;
  bool is_prepared_ = false;
  std::vector<Value> values_;
};

// A connection that commits groups of writes, one after the other. libpqxx 6.4 cannot send prepared
// statements with binary parameters in a pipeline, so this uses libpq on the connection of libpqxx.
// The pipeline keeps a commit at two round trips. Not thread-safe. Methods throw the exceptions of
// libpqxx. When one of them has thrown, the owner closes the connection, and that rolls the
// transaction back.
class GroupCommit final : public SqlConnection {
 public:
  explicit GroupCommit(const PostgresConnection::Options& options) : connection_(options) {}

  // Returns a statement whose Run sends without waiting and returns kDeferred.
  SqlDialect dialect() const override { return SqlDialect::kPostgres; }
  Query Prepare(std::string_view sql) override;
  // Begins a transaction.
  void Begin();
  // Waits for the results of everything that was sent. Throws the first error.
  void Finish();
  // Number of changed rows of each statement since Begin, as far as the results have arrived.
  const std::vector<int64_t>& counts() const { return counts_; }
  // Commits the transaction. Throws pqxx::in_doubt_error if the outcome is unknown.
  void Commit();

  // The connection outside of a transaction of this class.
  PostgresConnection& connection() { return connection_; }

 private:
  friend class GroupStatement;

  struct ClearResult {
    void operator()(pqxx::internal::pq::PGresult* result) const;
  };
  using Result = std::unique_ptr<pqxx::internal::pq::PGresult, ClearResult>;

  ConnectionPolicy::handle handle() const { return connection_.policy_.handle_; }
  void Send(GroupStatement& statement);
  // Waits for the next result from the server. Returns null at the end of one statement.
  Result Take();
  // Takes the single result of a statement that was sent, and the null after it.
  Result TakeOnly();
  // Reads the results of every statement that was sent.
  void Drain();
  void Check(const pqxx::internal::pq::PGresult* result);
  [[noreturn]] void ThrowLost();

  PostgresConnection connection_;
  std::map<std::string, std::unique_ptr<GroupStatement>, std::less<>> statements_;
  std::optional<ConnectionPolicy::Call> sending_;  // from the first statement until all are sent
  std::vector<bool> pending_runs_;                 // sent and not yet read; false: a preparation
  std::vector<int64_t> counts_;
};

}  // namespace lathe::engine
