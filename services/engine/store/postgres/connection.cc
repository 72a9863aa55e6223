#include "services/engine/store/postgres/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/time/clock.h"

namespace lathe::engine {
namespace {

constexpr int kBinary = 1;
// Silence of the server, beyond its own time-outs, after which the connection counts as lost.
constexpr absl::Duration kSilence = absl::Seconds(5);
// Number of statements that are sent before their results are read. More of them could fill the
// buffers of both sides and block both.
constexpr size_t kMaxPending = 128;
// Extra time that the server gets after each part of a large result.
constexpr absl::Duration kProgress = absl::Seconds(1);
// Interval at which a wait checks whether it is still wanted.
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);

// Rewrites SQLite's parameters for Postgres: `?2` becomes `$2`. A plain `?` gets the number after
// the highest one before it, as in SQLite.
std::string WithDollars(std::string_view sql) {
  std::string text;
  int highest = 0;
  for (size_t i = 0; i < sql.size(); ++i) {
    if (sql[i] != '?') {
      text += sql[i];
      continue;
    }
    int number = 0;
    for (; i + 1 < sql.size() && sql[i + 1] >= '0' && sql[i + 1] <= '9'; ++i) {
      number = 10 * number + (sql[i + 1] - '0');
    }
    if (number == 0) number = highest + 1;
    highest = std::max(highest, number);
    absl::StrAppend(&text, "$", number);
  }
  return text;
}

int64_t Milliseconds(absl::Duration duration) { return absl::ToInt64Milliseconds(duration); }

std::string_view StateOf(const PGresult* result) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return state == nullptr ? std::string_view() : std::string_view(state);
}

}  // namespace

PostgresConnection::PostgresConnection(const Options& options)
    : options_(options), deadline_(options.deadline) {
  // The URL comes last, so its parameters override the ones above it.
  const std::array<const char*, 5> names = {"application_name", "tcp_user_timeout",
                                            "keepalives_idle", "dbname", nullptr};
  const std::array<const char*, 5> values = {"lathe-engine", "15000", "5", options.url.c_str(),
                                             nullptr};
  connection_.reset(PQconnectStartParams(names.data(), values.data(), /*expand_dbname=*/1));
  Connect();
  PQsetNoticeProcessor(
      connection_.get(), [](void*, const char*) {}, nullptr);
  if (PQsetnonblocking(connection_.get(), 1) != 0) ThrowLost("cannot connect");
  Configure();
}

// Connects without libpq's own wait, which uses the wall clock.
void PostgresConnection::Connect() {
  const absl::Time deadline = SteadyNow() + options_.connect_timeout;
  if (!connection_ || PQstatus(connection_.get()) == CONNECTION_BAD) ThrowLost("cannot connect");
  PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;
  while (wanted != PGRES_POLLING_OK) {
    if (wanted == PGRES_POLLING_FAILED) ThrowLost("cannot connect");
    Wait(wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline);
    wanted = PQconnectPoll(connection_.get());
  }
}

void PostgresConnection::Configure() {
  Execute(absl::StrFormat(
      "SET client_encoding = 'UTF8'; SET synchronous_commit = on; SET work_mem = '32MB';"
      "SET statement_timeout = %d; SET lock_timeout = %d;"
      "SET idle_in_transaction_session_timeout = %d",
      Milliseconds(options_.statement_timeout), Milliseconds(options_.lock_timeout),
      Milliseconds(options_.idle_in_transaction_timeout)));
}

Query PostgresConnection::Prepare(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    auto statement = std::make_unique<PostgresStatement>(
        *this, absl::StrCat("s", statements_.size()), WithDollars(sql));
    found = statements_.emplace(std::string(sql), std::move(statement)).first;
  }
  return Query(*found->second);
}

void PostgresConnection::Execute(const std::string& sql) {
  if (PQsendQuery(connection_.get(), sql.c_str()) == 0) ThrowLost("cannot send");
  Flush();
  std::optional<PostgresError> error;
  while (const Result result = Take()) {
    try {
      Check(result.get());
    } catch (const PostgresError& found) {
      if (!error) error = found;
    }
  }
  if (error) throw *error;
}

int64_t PostgresConnection::SessionPid() {
  if (PQsendQuery(connection_.get(), "SELECT pg_backend_pid()") == 0) ThrowLost("cannot send");
  Flush();
  const Result result = TakeOnly();
  Check(result.get());
  return std::atoll(PQgetvalue(result.get(), 0, 0));
}

void PostgresConnection::Commit() {
  Query commit = Prepare("COMMIT");
  is_commit_unknown_ = true;
  commit.Run();
  is_commit_unknown_ = false;
}

void PostgresConnection::BeginPipeline() {
  pipeline_counts_.clear();
  if (PQenterPipelineMode(connection_.get()) == 0) ThrowLost("cannot begin a pipeline");
  in_pipeline_ = true;
}

void PostgresConnection::EndPipeline() {
  Drain();
  in_pipeline_ = false;
  if (PQexitPipelineMode(connection_.get()) == 0) ThrowLost("cannot end a pipeline");
}

void PostgresConnection::SendPrepare(PostgresStatement& statement) {
  if (PQsendPrepare(connection_.get(), statement.name_.c_str(), statement.sql_.c_str(), 0,
                    nullptr) == 0) {
    ThrowLost("cannot send");
  }
  // A failure closes the connection, and the statement with it.
  statement.is_prepared_ = true;
}

void PostgresConnection::Send(PostgresStatement& statement) {
  if (!statement.is_prepared_) {
    SendPrepare(statement);
    if (in_pipeline_) {
      pending_runs_.push_back(false);
    } else {
      Flush();
      Check(TakeOnly().get());
    }
  }
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  for (const PostgresStatement::Value& value : statement.values_) {
    values.push_back(value.is_borrowed ? value.borrowed.data() : value.owned.c_str());
    const size_t length = value.is_borrowed ? value.borrowed.size() : value.owned.size();
    lengths.push_back(static_cast<int>(length));
    formats.push_back(value.is_binary ? kBinary : 0);
  }
  if (PQsendQueryPrepared(connection_.get(), statement.name_.c_str(),
                          static_cast<int>(values.size()), values.data(), lengths.data(),
                          formats.data(), kBinary) == 0) {
    ThrowLost("cannot send");
  }
  if (!in_pipeline_) return Flush();
  pending_runs_.push_back(true);
  if (pending_runs_.size() >= kMaxPending) Drain();
}

PostgresConnection::Result PostgresConnection::Call(PostgresStatement& statement) {
  Send(statement);
  Result result = TakeOnly();
  Check(result.get());
  return result;
}

absl::Time PostgresConnection::SilenceDeadline() const {
  if (options_.statement_timeout == absl::ZeroDuration()) return absl::InfiniteFuture();
  return SteadyNow() + options_.statement_timeout + kSilence;
}

PostgresConnection::Result PostgresConnection::Take() {
  const absl::Time deadline = SilenceDeadline();
  while (PQisBusy(connection_.get()) != 0) {
    Wait(POLLIN, deadline);
    if (PQconsumeInput(connection_.get()) == 0) ThrowLost("cannot read");
    deadline_ = std::max(deadline_, SteadyNow() + kProgress);
  }
  return Result(PQgetResult(connection_.get()));
}

PostgresConnection::Result PostgresConnection::TakeOnly() {
  Result result = Take();
  if (!result) ThrowLost("no answer");
  while (Take()) {
  }
  return result;
}

// Reads while it sends: a server that cannot send its answers accepts no more statements.
void PostgresConnection::Flush() {
  const absl::Time deadline = SilenceDeadline();
  for (;;) {
    const int left = PQflush(connection_.get());
    if (left < 0) ThrowLost("cannot send");
    if (left == 0) return;
    const short ready = Wait(POLLIN | POLLOUT, deadline);
    if ((ready & POLLIN) != 0 && PQconsumeInput(connection_.get()) == 0) ThrowLost("cannot read");
  }
}

short PostgresConnection::Wait(short events, absl::Time deadline) {
  pollfd waited{.fd = PQsocket(connection_.get()), .events = events, .revents = 0};
  for (;;) {
    const absl::Duration left = std::min(deadline, deadline_) - SteadyNow();
    const absl::Duration look = std::clamp(left, absl::ZeroDuration(), kLookEvery);
    const int64_t look_ms = Milliseconds(absl::Ceil(look, absl::Milliseconds(1)));
    const int ready = poll(&waited, 1, static_cast<int>(look_ms));
    if (ready > 0) return waited.revents;
    if (ready < 0 && errno != EINTR) ThrowLost("cannot wait for the server");
    if (left <= absl::ZeroDuration()) ThrowLost("no answer from the server");
    if (options_.given_up != nullptr && *options_.given_up) ThrowLost("the engine stops");
  }
}

void PostgresConnection::Drain() {
  if (PQpipelineSync(connection_.get()) == 0) ThrowLost("cannot send");
  Flush();
  std::optional<PostgresError> error;
  for (const bool is_run : std::exchange(pending_runs_, {})) {
    const Result result = TakeOnly();
    try {
      if (PQresultStatus(result.get()) == PGRES_PIPELINE_ABORTED) continue;
      Check(result.get());
      if (is_run) pipeline_counts_.push_back(std::atoll(PQcmdTuples(result.get())));
    } catch (const PostgresError& found) {
      if (found.fault() == PostgresFault::kLost) throw;
      if (!error) error = found;
    }
  }
  const Result sync = Take();
  if (!sync || PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) ThrowLost("no end of a pipeline");
  if (error) throw *error;
}

void PostgresConnection::Check(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
    // The server answers a COMMIT with ROLLBACK if the transaction had already failed.
    if (is_commit_unknown_ && std::string_view(PQcmdStatus(const_cast<PGresult*>(result))) ==
                                  std::string_view("ROLLBACK")) {
      throw PostgresError(PostgresFault::kOurs, "", "the transaction had failed before its commit");
    }
    return;
  }
  if (PQstatus(connection_.get()) == CONNECTION_BAD) ThrowLost(PQresultErrorMessage(result));
  const std::string_view state = StateOf(result);
  throw PostgresError(FaultOf(state), state, PQresultErrorMessage(result));
}

void PostgresConnection::ThrowLost(std::string_view message) {
  throw PostgresError(
      PostgresFault::kLost, "",
      absl::StrFormat("%s: %s", std::string(message), PQerrorMessage(connection_.get())));
}

}  // namespace lathe::engine
