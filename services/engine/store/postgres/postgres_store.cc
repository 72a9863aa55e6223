#include "services/engine/store/postgres/postgres_store.h"

#include <unistd.h>

#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/postgres/backoff.h"
#include "services/engine/store/postgres/migrate.h"
#include "services/engine/store/sql/load_state.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

constexpr char kRaiseTerm[] =
    "UPDATE leader SET term = term + 1, last_commit = 0, holder = ? RETURNING term";
// Locks the row: a takeover waits for us or we for it. Taken once for each number, so that a commit
// that is tried again after its outcome was lost changes nothing a second time. It waits for the
// session that had tried it before, should that still be alive.
constexpr char kTakeNumber[] =
    "UPDATE leader SET last_commit = ?2 WHERE term = ?1 AND last_commit < ?2";
constexpr char kReadLeader[] = "SELECT term, last_commit FROM leader";
// The fence of what has no number.
constexpr char kShareTerm[] = "SELECT term FROM leader FOR SHARE";
constexpr char kLongStatements[] = "SET LOCAL statement_timeout = 0";
constexpr char kInsertBody[] =
    "INSERT INTO payloads (body_id, bytes) VALUES (?, ?) ON CONFLICT DO NOTHING";
constexpr char kDeleteBody[] = "DELETE FROM payloads WHERE body_id = ?";

// Deadlocks and serialisation failures in a row; our transactions take locks in one order, so one
// is somebody else's doing and soon over.
constexpr int kMaxConflicts = 8;
constexpr absl::Duration kLogEvery = absl::Seconds(10);
constexpr int64_t kPurgeBatch = 1000;
// A large body that was not written by then is refused; its caller tries again.
constexpr absl::Duration kMaxBodyWait = absl::Seconds(5);

absl::Status NotLeader(int64_t term, int64_t current_term) {
  return absl::FailedPreconditionError(
      absl::StrFormat("commit under term %d, the leader has term %d", term, current_term));
}

std::string ThisProcess() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return absl::StrCat(host.data(), ":", getpid());
}

absl::Status CheckTerm(PostgresConnection& connection, int64_t term) {
  Query query = connection.Prepare(kShareTerm);
  query.Next();
  const int64_t current_term = query.Int();
  return current_term == term ? absl::OkStatus() : NotLeader(term, current_term);
}

// Repeats `attempt`, which throws PostgresError, until it succeeds or what it throws will not pass.
template <typename Attempt>
auto Insist(const char* what, absl::Time deadline, const Attempt& attempt) -> decltype(attempt()) {
  Backoff backoff;
  int num_conflicts = 0;
  absl::Time logged_at = absl::InfinitePast();
  for (;;) {
    try {
      return attempt();
    } catch (const PostgresError& error) {
      const absl::Time now = absl::Now();
      num_conflicts = error.fault() == PostgresFault::kConflict ? num_conflicts + 1 : 0;
      if (error.fault() == PostgresFault::kOurs || num_conflicts > kMaxConflicts ||
          now > deadline) {
        return error.status();
      }
      if (now - logged_at >= kLogEvery) {
        LogWarn("the database does not do it now, trying again",
                {{"what", what}, {"error", error.what()}});
        logged_at = now;
      }
      absl::SleepFor(backoff.Next());
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresStore>> PostgresStore::Open(const Options& options) {
  // Another engine may migrate for minutes: no time-outs here.
  const PostgresConnection::Options patient = {.url = options.url,
                                               .statement_timeout = absl::ZeroDuration(),
                                               .lock_timeout = absl::ZeroDuration(),
                                               .idle_in_transaction_timeout = absl::ZeroDuration()};
  RETURN_IF_ERROR(Insist("migrate", absl::Now() + options.open_timeout, [&] {
    PostgresConnection connection(patient);
    return MigratePostgres(connection);
  }));
  return std::unique_ptr<PostgresStore>(new PostgresStore(options));
}

PostgresStore::PostgresStore(const Options& options)
    : connection_options_({.url = options.url}),
      readers_(connection_options_, options.max_read_connections),
      writers_(connection_options_, options.max_write_connections) {}

absl::StatusOr<StoredState> PostgresStore::TakeLeadership() {
  absl::MutexLock lock(&write_mu_);
  return Insist("take leadership", absl::InfiniteFuture(), [&]() -> absl::StatusOr<StoredState> {
    PostgresConnection connection(connection_options_);
    ASSIGN_OR_RETURN(StoredState state, TryTakeLeadership(connection));
    term_ = state.term;
    return state;
  });
}

absl::StatusOr<StoredState> PostgresStore::TryTakeLeadership(PostgresConnection& connection) {
  connection.Begin();
  connection.Execute(kLongStatements);
  int64_t term = 0;
  {
    Query raise = connection.Prepare(kRaiseTerm);
    raise.Bind(ThisProcess());
    raise.Next();
    term = raise.Int();
  }
  SweepPayloads(connection);
  StoredState state = LoadState(connection, absl::GetCurrentTimeNanos());
  state.term = term;
  connection.Commit();
  return state;
}

absl::Status PostgresStore::Commit(int64_t term, std::span<const Write> writes,
                                   std::span<const Blob> blobs) {
  absl::MutexLock lock(&write_mu_);
  const int64_t number = ++last_number_;
  return Insist("commit", absl::InfiniteFuture(), [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    try {
      const absl::Status status = TryCommit(term, number, writes, blobs);
      // Closing it rolls back.
      if (!status.ok()) committer_.reset();
      return status;
    } catch (const PostgresError&) {
      committer_.reset();
      throw;
    }
  });
}

absl::Status PostgresStore::TryCommit(int64_t term, int64_t number, std::span<const Write> writes,
                                      std::span<const Blob> blobs) {
  if (!committer_) committer_ = std::make_unique<PostgresConnection>(connection_options_);
  BlobIndex index;
  for (const Blob& blob : blobs) index.emplace(blob.id, blob.bytes);
  WriteApplier applier(*committer_, index);
  const auto was_taken = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const std::vector<int64_t>& counts = committer_->pipeline_counts();
    return counts.size() < 2 || counts[1] == 1;
  };
  try {
    committer_->BeginPipeline();
    committer_->Begin();
    committer_->Prepare(kTakeNumber).Bind(term, number).Run();
    for (const Write& write : writes) RETURN_IF_ERROR(applier.Apply(write));
    committer_->EndPipeline();
  } catch (const PostgresError& error) {
    // What was done already, or by another leader, is in the way of doing it.
    if (error.fault() == PostgresFault::kOurs && !was_taken()) return FindOutcome(term, number);
    throw;
  }
  if (!was_taken()) return FindOutcome(term, number);
  FailPoint("engine.commit.applied");
  committer_->Commit();
  for (const PurgeResults& purge : applier.purges()) PurgeInBatches(term, purge);
  return absl::OkStatus();
}

absl::Status PostgresStore::FindOutcome(int64_t term, int64_t number) {
  // A new session: the old one may be in the middle of anything.
  committer_ = std::make_unique<PostgresConnection>(connection_options_);
  Query query = committer_->Prepare(kReadLeader);
  query.Next();
  const int64_t current_term = query.Int();
  const int64_t last_commit = query.Int();
  if (current_term != term) return NotLeader(term, current_term);
  if (last_commit == number) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "commit %d of term %d is not the last one, which is %d", number, term, last_commit));
}

void PostgresStore::PurgeInBatches(int64_t term, const PurgeResults& purge) {
  try {
    int64_t num_deleted = kPurgeBatch;
    while (num_deleted >= kPurgeBatch) {
      committer_->Begin();
      // The next commit finds out that somebody else leads.
      if (!CheckTerm(*committer_, term).ok()) return committer_.reset();
      num_deleted = Purge(*committer_, purge, kPurgeBatch);
      committer_->Commit();
    }
  } catch (const PostgresError& error) {
    // The next purge does what this one has not.
    LogWarn("old results were not removed", {{"error", error.what()}});
    committer_.reset();
  }
}

// Not fenced, which would keep commits waiting: a body that nothing names harms nobody.
absl::Status PostgresStore::PutLargeBody(const std::string& body_id, const std::string& bytes) {
  if (const int error = FailPointErrno("engine.body.before_write")) {
    return absl::ErrnoToStatus(error, "a request body was not kept");
  }
  const absl::Time deadline = absl::Now() + kMaxBodyWait;
  Backoff backoff;
  for (;;) {
    const absl::Status status = writers_.Run([&](PostgresConnection& connection) {
      connection.Prepare(kInsertBody).Bind(body_id).BindBytes(bytes).Run();
      return absl::OkStatus();
    });
    if (status.ok()) FailPoint("engine.body.written");
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
    if (absl::Now() > deadline) {
      return absl::UnavailableError(
          absl::StrCat("a request body was not kept: ", status.message()));
    }
    absl::SleepFor(backoff.Next());
  }
}

void PostgresStore::DiscardLargeBody(const std::string& body_id) {
  const absl::Status status = writers_.Run([&](PostgresConnection& connection) {
    connection.Prepare(kDeleteBody).Bind(body_id).Run();
    return absl::OkStatus();
  });
  // The next leader sweeps it.
  if (!status.ok()) LogWarn("a request body was not removed", {{"error", status.message()}});
}

absl::StatusOr<std::string> PostgresStore::ReadBody(const std::string& body_id) {
  ASSIGN_OR_RETURN(std::optional<std::string> payload, ReadPayload(body_id));
  if (payload) return *std::move(payload);
  return absl::NotFoundError(absl::StrCat("no body '", body_id, "'"));
}

absl::Status PostgresStore::Read(const Work& work) { return readers_.Run(work); }

absl::Status PostgresStore::Change(const Work& work) {
  return writers_.Run([&](PostgresConnection& connection) -> absl::Status {
    connection.Begin();
    const int64_t term = term_;
    if (term > 0) RETURN_IF_ERROR(CheckTerm(connection, term));
    RETURN_IF_ERROR(work(connection));
    connection.Commit();
    return absl::OkStatus();
  });
}

}  // namespace lathe::engine
