// One Postgres connection with its prepared statements. It uses libpq directly: libpqxx 6.4 cannot
// send prepared statements with binary parameters in a pipeline. The pipeline keeps a group commit
// at two round trips.
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

// A prepared statement of one PostgresConnection. Values travel in the server's binary format.
// Numeric parameters are the exception: they are sent as text, because the server infers their
// width.
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
  Result result_;  // rows that Next reads
  int row_ = -1;
  int column_ = 0;
};

// One connection to the server. Not thread-safe. Methods throw PostgresError. When a transaction
// fails, the owner closes the connection, and that rolls the transaction back.
class PostgresConnection final : public SqlConnection {
 public:
  struct Options {
    // Connection URL as libpq takes it: postgres://user:password@host:port/database?parameters.
    std::string url;
    absl::Duration connect_timeout = absl::Seconds(5);
    // A statement that takes longer fails with kPassing; zero: no limit. A server that sends
    // nothing for this long and 5 s more counts as lost.
    absl::Duration statement_timeout = absl::Seconds(10);
    // Longest wait for one lock; a statement that waits longer fails with kPassing.
    absl::Duration lock_timeout = absl::Seconds(2);
    // The server rolls back a transaction whose client is silent for this long.
    absl::Duration idle_in_transaction_timeout = absl::Seconds(2);
    // Once true, no call waits for the server any more. Null: calls always wait. Must outlive the
    // connection.
    const std::atomic<bool>* given_up = nullptr;
    // Initial deadline, see WaitUntil. It also bounds the connection attempt.
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit PostgresConnection(const Options& options);

  // Sets a time, by SteadyNow, after which a silent server counts as lost even if its time-outs
  // have not passed.
  void WaitUntil(absl::Time deadline) { deadline_ = deadline; }

  Query Prepare(std::string_view sql) override;
  // Runs statements without parameters, all in one message.
  void Execute(const std::string& sql);
  // Returns the process id of the server's session. It uses no prepared statement, so that it also
  // works through a connection pooler.
  int64_t SessionPid();
  void Begin() { Prepare("BEGIN").Run(); }
  // Commits the transaction. If this throws kLost, the outcome is unknown.
  void Commit();
  // Returns true if a COMMIT was sent and its answer did not arrive.
  bool is_commit_unknown() const { return is_commit_unknown_; }

  // Starts a pipeline: from here on Run sends without waiting and returns kDeferred.
  void BeginPipeline();
  // Waits for the results of everything that Run has sent. Throws the first error.
  void EndPipeline();
  // Number of changed rows of each Run since BeginPipeline, as far as the results have arrived.
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
  // Runs a statement outside a pipeline and returns its result.
  Result Call(PostgresStatement& statement);
  // Waits for the next result from the server. Returns null at the end of one statement.
  Result Take();
  // Takes the single result of a statement that was sent, and the null after it.
  Result TakeOnly();
  // Returns the time at which a server that sends nothing from now on counts as lost.
  absl::Time SilenceDeadline() const;
  // Blocks until libpq has handed everything that was queued to the socket.
  void Flush();
  // Waits until the socket is ready for `events` (POLLIN or POLLOUT). Returns the ready events.
  short Wait(short events, absl::Time deadline);
  // Reads the results of every statement in the pipeline.
  void Drain();
  void Check(const PGresult* result);
  [[noreturn]] void ThrowLost(std::string_view message);

  const Options options_;
  absl::Time deadline_;
  std::unique_ptr<PGconn, Close> connection_;
  std::map<std::string, std::unique_ptr<PostgresStatement>, std::less<>> statements_;
  bool is_commit_unknown_ = false;
  bool in_pipeline_ = false;
  std::vector<bool> pending_runs_;  // sent and not yet read; false: a preparation
  std::vector<int64_t> pipeline_counts_;
};

}  // namespace lathe::engine
