#include "services/engine/store/postgres/postgres_store.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/store/postgres/libpqxx.h"
#include "services/engine/store/postgres/migrate.h"
#include "services/engine/store/postgres/online_indexes.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/purge.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

// Locks the row, so that a takeover and a commit wait for each other. Each number succeeds only
// once: a commit that is retried after its outcome was lost has no second effect. The statement
// also waits for the session of the earlier attempt, if that session is still alive.
constexpr char kTakeNumber[] =
    "UPDATE leader SET last_commit = ?2 WHERE term = ?1 AND last_commit < ?2";
constexpr char kReadLeader[] = "SELECT term, last_commit FROM leader";
// Fences statements that have no commit number.
constexpr char kShareTerm[] = "SELECT term FROM leader FOR SHARE";
constexpr char kOldestTransaction[] =
    "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8, pid::bigint, "
    "coalesce(application_name, ''), coalesce(state, '') FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL "
    "ORDER BY xact_start LIMIT 1";
constexpr char kInsertBody[] =
    "INSERT INTO payloads (body_id, bytes) VALUES (?, ?) ON CONFLICT DO NOTHING";
constexpr char kDeleteBody[] = "DELETE FROM payloads WHERE body_id = ?";

// Maximum number of deadlocks and serialization failures in a row. The engine's own transactions
// take locks in one order, so a conflict comes from another program and soon passes.
constexpr int kMaxConflicts = 8;
// Number of comparisons: a pooler that is busy with other clients may assign two sessions now and
// then.
constexpr int kSessionChecks = 8;
constexpr absl::Duration kLogEvery = absl::Seconds(10);
// Time limit of a read or change. A call that takes longer is refused, and its caller tries again.
// It is shorter than the 5 s in which every call is answered.
constexpr absl::Duration kMaxWait = absl::Seconds(4);
// Transfer rate that extends the time limit for a large body.
constexpr int64_t kBodyBytesPerSecond = 20 << 20;
// Longest pause between two statements of a load, while the engine processes the rows.
constexpr absl::Duration kMaxLoadPause = absl::Seconds(10);
// Time limit of one statement of a listing. A listing has two long ones at most, so the server ends
// it before kMaxWait has passed, and only a server that hangs reaches that.
constexpr absl::Duration kMaxListStatement = absl::Milliseconds(900);
// Time limit of a lease call. It is short so that several renewals can be tried within one lease.
constexpr absl::Duration kMaxLeaseWait = absl::Seconds(2);
// How long the making of an index waits for one older transaction. It is tried again after the next
// purge.
constexpr absl::Duration kMaxIndexWait = absl::Minutes(10);

// Exponential back-off from 10 ms to one second. Up to half of each delay is random, so that
// engines that lost the same server do not reconnect in step.
class Backoff {
 public:
  absl::Duration Next() {
    const absl::Duration whole = next_;
    next_ = std::min(next_ * 2, absl::Seconds(1));
    return whole * absl::Uniform(random_, 0.5, 1.0);
  }

 private:
  absl::BitGen random_;
  absl::Duration next_ = absl::Milliseconds(10);
};

absl::Status NotLeader(int64_t term, int64_t current_term) {
  return absl::FailedPreconditionError(
      absl::StrFormat("commit under term %d, the leader has term %d", term, current_term));
}

absl::Status CheckTerm(PostgresConnection& connection, int64_t term) {
  Query query = connection.Prepare(kShareTerm);
  query.Next();
  const int64_t current_term = query.Int();
  return current_term == term ? absl::OkStatus() : NotLeader(term, current_term);
}

// Repeats `attempt`, which throws exceptions of libpqxx, until it succeeds. Gives up when a retry
// cannot fix the error, when conflicts repeat, after `deadline`, or once `watch` has given up;
// null: it never does.
template <typename Attempt>
auto Insist(const char* what, absl::Time deadline, const ConnectionWatch* watch,
            const Attempt& attempt) -> decltype(attempt()) {
  Backoff backoff;
  int num_conflicts = 0;
  absl::Time logged_at = absl::InfinitePast();
  for (;;) {
    try {
      return attempt();
    } catch (const pqxx::pqxx_exception& error) {
      const absl::Time now = SteadyNow();
      const PostgresFault fault = FaultOf(error);
      num_conflicts = fault == PostgresFault::kConflict ? num_conflicts + 1 : 0;
      if (fault == PostgresFault::kOurs || num_conflicts > kMaxConflicts || now > deadline ||
          (watch != nullptr && watch->has_given_up())) {
        return StatusOf(error);
      }
      if (now - logged_at >= kLogEvery) {
        LogWarn("a database operation failed and is tried again",
                {{"operation", what}, {"error", StatusOf(error).message()}});
        logged_at = now;
      }
      absl::SleepFor(backoff.Next());
    }
  }
}

PostgresConnection::Options ListOptions(PostgresConnection::Options options) {
  options.statement_timeout = kMaxListStatement;
  options.lock_timeout = kMaxListStatement;
  return options;
}

// No time-outs of statements, because a step may take minutes, and another engine may take them
// before. Only locks of tables have one (kMigrationLockTimeout). An engine that hangs within a step
// loses its transaction, so that the next leader gets its locks.
PostgresConnection::Options MigrationOptions(PostgresConnection::Options options) {
  options.statement_timeout = absl::ZeroDuration();
  options.lock_timeout = absl::ZeroDuration();
  options.idle_in_transaction_timeout = kMaxLoadPause;
  return options;
}

PostgresConnection::Options LeaseOptions(PostgresConnection::Options options) {
  options.connect_timeout = kMaxLeaseWait;
  options.statement_timeout = kMaxLeaseWait;
  options.lock_timeout = kMaxLeaseWait / 2;
  return options;
}

}  // namespace

absl::Status CheckSessions(PostgresConnection& connection,
                           const PostgresConnection::Options& options) {
  PostgresConnection other(options);
  for (int i = 0; i < kSessionChecks; ++i) {
    if (connection.SessionPid() != other.SessionPid()) continue;
    return absl::FailedPreconditionError(
        "two connections to the database share one session: a pooler like PgBouncer in "
        "transaction or statement mode is between; connect to Postgres itself, or set "
        "pool_mode = session");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PostgresStore>> PostgresStore::Open(const Options& options) {
  const PostgresConnection::Options patient = MigrationOptions({.url = options.url});
  const auto prepare = [&]() -> absl::Status {
    PostgresConnection connection(patient);
    RETURN_IF_ERROR(CheckSessions(connection, patient));
    return PreparePostgres(connection, options.schema);
  };
  RETURN_IF_ERROR(Insist("open", SteadyNow() + options.open_timeout, /*watch=*/nullptr, prepare));
  return std::unique_ptr<PostgresStore>(new PostgresStore(options));
}

PostgresStore::PostgresStore(const Options& options)
    : schema_(options.schema),
      connection_options_({.url = options.url, .watch = &watch_}),
      readers_(connection_options_, options.max_read_connections),
      listers_(ListOptions(connection_options_), options.max_list_connections),
      writers_(connection_options_, options.max_write_connections),
      purgers_(connection_options_, /*max_connections=*/1, /*slow=*/absl::InfiniteDuration()),
      folders_(connection_options_, /*max_connections=*/1, /*slow=*/absl::InfiniteDuration()),
      leases_(LeaseOptions(connection_options_), /*max_connections=*/1,
              /*slow=*/absl::InfiniteDuration()) {}

absl::StatusOr<StoredState> PostgresStore::TakeLeadership() {
  Backoff backoff;
  for (;;) {
    absl::StatusOr<StoredState> state = SqlStore::TakeLeadership();
    // Aborted: it is unknown whether a transaction on the lease was committed. The next one finds
    // out.
    const bool is_passing = absl::IsUnavailable(state.status()) || absl::IsAborted(state.status());
    if (!is_passing || watch_.has_given_up()) return state;
    absl::SleepFor(backoff.Next());
  }
}

absl::Status PostgresStore::Migrate(int64_t term) {
  const PostgresConnection::Options patient = MigrationOptions(connection_options_);
  return Insist("migrate", absl::InfiniteFuture(), &watch_, [&] {
    PostgresConnection connection(patient);
    return MigratePostgres(connection, schema_, term);
  });
}

absl::Status PostgresStore::MakeIndexes() {
  // A statement waits for the oldest transaction in the database. The purge stands meanwhile.
  PostgresConnection::Options patient = MigrationOptions(connection_options_);
  patient.lock_timeout = kMaxIndexWait;
  try {
    PostgresConnection connection(patient);
    // A server does not notice by itself that the engine of a long statement is gone.
    connection.Execute("SET client_connection_check_interval = '10s'");
    return MakeIndexesOnline(connection, schema_);
  } catch (const pqxx::pqxx_exception& error) {
    return StatusOf(error);
  }
}

absl::StatusOr<StoredState> PostgresStore::Load(int64_t term) {
  // No time-out, because the state may be large. An engine that cannot renew its lease meanwhile
  // ends.
  PostgresConnection::Options patient = connection_options_;
  patient.statement_timeout = absl::ZeroDuration();
  patient.idle_in_transaction_timeout = kMaxLoadPause;
  absl::MutexLock lock(&write_mu_);
  return Insist("load", absl::InfiniteFuture(), &watch_, [&]() -> absl::StatusOr<StoredState> {
    PostgresConnection connection(patient);
    ASSIGN_OR_RETURN(StoredState state, TryLoad(connection, term));
    term_ = term;
    return state;
  });
}

// Has no time-out, because it looks at whole tables. A start asks it only if the place of the
// checkpoints is nobody's.
absl::StatusOr<std::vector<std::string>> PostgresStore::NamedDirs() {
  PostgresConnection::Options patient = connection_options_;
  patient.statement_timeout = absl::ZeroDuration();
  return Insist("list of named directories", SteadyNow() + kMaxWait, /*watch=*/nullptr,
                [&]() -> absl::StatusOr<std::vector<std::string>> {
                  PostgresConnection connection(patient);
                  connection.Begin();
                  connection.Execute("SET LOCAL jit = off");
                  std::vector<std::string> dirs = ReadNamedDirs(connection);
                  connection.Commit();
                  return dirs;
                });
}

// Holds the leader's row, so that no later leader can have written a body that the sweep removes.
absl::StatusOr<StoredState> PostgresStore::TryLoad(PostgresConnection& connection, int64_t term) {
  connection.Begin();
  RETURN_IF_ERROR(CheckTerm(connection, term));
  // The planner overestimates the rows of each owner, and compiling for them takes most of the
  // time.
  connection.Execute("SET LOCAL jit = off");
  SweepPayloads(connection);
  const bool has_indexes = HasOnlineIndexes(connection, schema_);
  StoredState state = LoadState(connection, absl::GetCurrentTimeNanos(), has_indexes);
  state.term = term;
  connection.Commit();
  return state;
}

absl::Status PostgresStore::Commit(int64_t term, std::span<const Write> writes,
                                   std::span<const Blob> blobs) {
  absl::MutexLock lock(&write_mu_);
  const int64_t number = ++last_number_;
  return Insist("commit", absl::InfiniteFuture(), &watch_, [&] {
    write_mu_.AssertHeld();
    try {
      const absl::Status status = TryCommit(term, number, writes, blobs);
      // Closing the connection rolls the transaction back.
      if (!status.ok()) committer_.reset();
      return status;
    } catch (const pqxx::pqxx_exception&) {
      committer_.reset();
      throw;
    }
  });
}

absl::Status PostgresStore::TryCommit(int64_t term, int64_t number, std::span<const Write> writes,
                                      std::span<const Blob> blobs) {
  if (!committer_) committer_ = std::make_unique<GroupCommit>(connection_options_);
  BlobIndex index;
  for (const Blob& blob : blobs) index.emplace(blob.id, blob.bytes);
  WriteApplier applier(*committer_, index);
  const auto was_taken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_) {
    const std::vector<int64_t>& counts = committer_->counts();
    return counts.size() < 2 || counts[1] == 1;
  };
  try {
    committer_->Begin();
    committer_->Prepare(kTakeNumber).Bind(term, number).Run();
    for (const Write& write : writes) RETURN_IF_ERROR(applier.Apply(write));
    committer_->Finish();
  } catch (const pqxx::pqxx_exception& error) {
    // A constraint error is expected when this commit, or another leader's, is already applied.
    if (FaultOf(error) == PostgresFault::kOurs && !was_taken()) return FindOutcome(term, number);
    throw;
  }
  if (!was_taken()) return FindOutcome(term, number);
  FailPoint("engine.commit.applied");
  committer_->Commit();
  return absl::OkStatus();
}

absl::Status PostgresStore::FindOutcome(int64_t term, int64_t number) {
  // Use a new session, because the state of the old one is unknown.
  committer_ = std::make_unique<GroupCommit>(connection_options_);
  Query query = committer_->connection().Prepare(kReadLeader);
  query.Next();
  const int64_t current_term = query.Int();
  const int64_t last_commit = query.Int();
  if (current_term != term) return NotLeader(term, current_term);
  if (last_commit == number) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "commit %d of term %d is not the last one, which is %d", number, term, last_commit));
}

// Reads the term without a lock, so that no commit waits. A leader that was replaced meanwhile
// deletes only what its successor would delete too.
absl::Status PostgresStore::PurgePiece(int64_t term, PurgePass& pass) {
  return purgers_.Run(kMaxWait, [&](PostgresConnection& connection) -> absl::Status {
    PurgePass advanced = pass;
    connection.Begin();
    Query leader = connection.Prepare(kReadLeader);
    leader.Next();
    const int64_t current_term = leader.Int();
    if (current_term != term) return NotLeader(term, current_term);
    DeletePiece(connection, kMaxPurgedRows, advanced);
    connection.Commit();
    pass = advanced;
    return absl::OkStatus();
  });
}

// Not fenced, because a fence would delay commits. A body that no row names does no harm.
absl::Status PostgresStore::PutLargeBody(const std::string& body_id, const std::string& bytes) {
  if (const int error = FailPointErrno("engine.body.before_write")) {
    return absl::ErrnoToStatus(error, "a request body was not kept");
  }
  const auto seconds = static_cast<double>(bytes.size()) / kBodyBytesPerSecond;
  const absl::Time deadline = SteadyNow() + kMaxWait + absl::Seconds(seconds);
  Backoff backoff;
  for (;;) {
    const absl::Duration left = deadline - SteadyNow();
    const absl::Status status = writers_.Run(left, [&](PostgresConnection& connection) {
      connection.Prepare(kInsertBody).Bind(body_id).BindBytes(bytes).Run();
      return absl::OkStatus();
    });
    if (status.ok()) FailPoint("engine.body.written");
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
    const absl::Duration pause = backoff.Next();
    if (SteadyNow() + pause > deadline) {
      return absl::UnavailableError(
          absl::StrCat("a request body was not kept: ", status.message()));
    }
    absl::SleepFor(pause);
  }
}

void PostgresStore::DiscardLargeBody(const std::string& body_id) {
  const absl::Status status = writers_.Run(kMaxWait, [&](PostgresConnection& connection) {
    connection.Prepare(kDeleteBody).Bind(body_id).Run();
    return absl::OkStatus();
  });
  // The next leader's sweep removes the body.
  if (!status.ok()) LogWarn("a request body was not removed", {{"error", status.message()}});
}

absl::StatusOr<std::string> PostgresStore::ReadBody(const std::string& body_id) {
  ASSIGN_OR_RETURN(std::optional<std::string> payload, ReadPayload(body_id));
  if (payload) return *std::move(payload);
  return absl::NotFoundError(absl::StrCat("no body '", body_id, "'"));
}

absl::StatusOr<std::optional<OpenTransaction>> PostgresStore::OldestTransaction() {
  std::optional<OpenTransaction> oldest;
  const auto read = [&](SqlConnection& connection) {
    oldest.reset();
    Query query = connection.Prepare(kOldestTransaction);
    if (!query.Next()) return absl::OkStatus();
    const absl::Duration age = absl::Seconds(query.Real());
    const int64_t pid = query.Int();
    const std::string program = query.Text();
    oldest = {age, absl::StrFormat("pid %d of %s (%s)", pid, program, query.Text())};
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(Read(read));
  return oldest;
}

absl::Status PostgresStore::Read(const Work& work) { return readers_.Run(kMaxWait, work); }

absl::Status PostgresStore::List(const Work& work) { return listers_.Run(kMaxWait, work); }

absl::Status PostgresStore::Change(const Work& work) {
  return writers_.Run(kMaxWait, [&](PostgresConnection& connection) -> absl::Status {
    connection.Begin();
    const int64_t term = term_;
    if (term > 0) RETURN_IF_ERROR(CheckTerm(connection, term));
    RETURN_IF_ERROR(work(connection));
    connection.Commit();
    return absl::OkStatus();
  });
}

// Reads no term, because a lock of the leader's row would delay commits. Has its own connection,
// because a slow fold may not hold up bodies and keys.
absl::Status PostgresStore::ChangeSeries(const Work& work) {
  return folders_.Run(kMaxWait, [&](PostgresConnection& connection) -> absl::Status {
    connection.Begin();
    RETURN_IF_ERROR(work(connection));
    connection.Commit();
    return absl::OkStatus();
  });
}

// Uses its own connections. They do not touch the leader's row, which commits lock.
absl::Status PostgresStore::OnLease(const Work& work) {
  return leases_.Run(kMaxLeaseWait, [&](PostgresConnection& connection) -> absl::Status {
    connection.Begin();
    RETURN_IF_ERROR(work(connection));
    connection.Commit();
    return absl::OkStatus();
  });
}

}  // namespace lathe::engine
