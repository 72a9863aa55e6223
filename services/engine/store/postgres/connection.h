// One Postgres connection with its prepared statements. libpq itself and not libpqxx: version 6.4
// of that cannot send prepared statements with binary parameters in a pipeline, which is what makes
// a group commit two round trips.
#pragma once

#include <libpq-fe.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "services/engine/store/postgres/postgres_error.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

class PostgresConnection;

// All values are sent and read as the server keeps them, numbers apart, which are sent as text
// because the width of a parameter is the server's to infer.
class PostgresStatement final : public SqlStatement {
 public:
  // `connection` must outlive this.
  PostgresStatement(PostgresConnection& connection, std::string name, std::string sql)
      : connection_(connection), name_(std::move(name)), sql_(std::move(sql)) {}

  void Bind(int64_t value) override;
  void Bind(double value) override;
  void Bind(std::string_view text) override;
  void BindBytes(std::string_view bytes) override;
  int64_t Run() override;
  bool Next() override;
  std::string Text() override;
  std::string Bytes() override;
  int64_t Int() override;
  double Real() override;
  void Reset() override;

 private:
  friend class PostgresConnection;

  struct Value {
    std::string owned;
    std::string_view borrowed;
    bool is_borrowed = false;
    bool is_binary = false;
  };
  struct FreeResult {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  using Result = std::unique_ptr<PGresult, FreeResult>;

  std::string_view NextColumn();

  PostgresConnection& connection_;
  const std::string name_;
  const std::string sql_;
  bool is_prepared_ = false;
  std::vector<Value> values_;
  Result result_;  // of Next
  int row_ = -1;
  int column_ = 0;
};

// Not thread-safe. Methods throw PostgresError. One that failed within a transaction is closed by
// its owner, which rolls the transaction back.
class PostgresConnection final : public SqlConnection {
 public:
  struct Options {
    // As libpq takes it: postgres://user:password@host:port/database?parameters.
    std::string url;
    absl::Duration connect_timeout = absl::Seconds(5);
    // A statement that takes longer fails with kPassing; zero: never. A server that says nothing
    // for this and 5 s more counts as gone.
    absl::Duration statement_timeout = absl::Seconds(10);
    // The same for a wait for one lock.
    absl::Duration lock_timeout = absl::Seconds(2);
    // The server rolls back a transaction whose client is silent for this long.
    absl::Duration idle_in_transaction_timeout = absl::Seconds(2);
    // Once true, nothing waits for the server any more; null: never. Must outlive the connection.
    const std::atomic<bool>* given_up = nullptr;
    // As of WaitUntil, for the making of the connection too.
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit PostgresConnection(const Options& options);

  // A server that is silent at `deadline`, by SteadyNow, counts as gone, whatever the time-outs.
  void WaitUntil(absl::Time deadline) { deadline_ = deadline; }

  Query Prepare(std::string_view sql) override;
  // Runs statements without parameters, together.
  void Execute(const std::string& sql);
  // Of the server's process. Asked without a prepared statement, so that it answers behind a
  // pooler.
  int64_t SessionPid();
  void Begin() { Prepare("BEGIN").Run(); }
  // Its outcome is unknown when this throws kLost.
  void Commit();
  // Whether a Commit was sent whose answer did not come.
  bool is_commit_unknown() const { return is_commit_unknown_; }

  // Run sends from now on without waiting and returns kDeferred.
  void BeginPipeline();
  // Waits for what Run has sent; throws the first error.
  void EndPipeline();
  // Changed rows of each Run since BeginPipeline, as far as their outcome is known.
  const std::vector<int64_t>& pipeline_counts() const { return pipeline_counts_; }

 private:
  friend class PostgresStatement;

  struct Close {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  using Result = PostgresStatement::Result;

  void Connect();
  void Configure();
  void Send(PostgresStatement& statement);
  void SendPrepare(PostgresStatement& statement);
  // Of a statement outside a pipeline.
  Result Call(PostgresStatement& statement);
  // Waits for the next result of what was sent; null at the end of one statement.
  Result Take();
  // The one result of a statement that was sent, and the null behind it.
  Result TakeOnly();
  // Of the server's silence from now on.
  absl::Time SilenceDeadline() const;
  // Until what was sent is on its way.
  void Flush();
  // For POLLIN or POLLOUT; returns what has come.
  short Wait(short events, absl::Time deadline);
  // Reads the results of all that is in the pipeline.
  void Drain();
  void Check(const PGresult* result);
  [[noreturn]] void ThrowLost(std::string_view message);

  const Options options_;
  absl::Time deadline_;
  std::unique_ptr<PGconn, Close> connection_;
  std::map<std::string, std::unique_ptr<PostgresStatement>, std::less<>> statements_;
  bool is_commit_unknown_ = false;
  bool in_pipeline_ = false;
  std::vector<bool> pending_runs_;  // sent in the pipeline and not read; false: a preparation
  std::vector<int64_t> pipeline_counts_;
};

}  // namespace lathe::engine
