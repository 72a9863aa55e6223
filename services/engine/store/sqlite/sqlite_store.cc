#include "services/engine/store/sqlite/sqlite_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/purge.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

// auto_vacuum must come before the first table.
constexpr char kPragmas[] =
    "PRAGMA auto_vacuum = INCREMENTAL;"
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;"
    // Length, in pages of 4 KiB, at which a commit copies the log into the database. At SQLite's
    // default of 1,000 pages, one request in seventy waited for that.
    "PRAGMA wal_autocheckpoint = 4000;"
    // Debian's SQLite overwrites what it deletes with zeros, also where that costs writes. Without
    // these, a piece of a purge writes a third fewer pages.
    "PRAGMA secure_delete = FAST;"
    // Cache size in KiB. Keys are random, so pages of an index are read in no order.
    "PRAGMA cache_size = -32768;";
// A piece of a purge gives back to the file system one page for so many rows, and a few at least.
// More pages would make a piece long.
constexpr int64_t kRowsPerPage = 8;
constexpr int64_t kFewPages = 8;
// Copies the log into the database, as far as no reader and no other checkpoint is in the way.
constexpr char kCopyLog[] = "PRAGMA wal_checkpoint(PASSIVE)";
// Number of pages that a purge writes to the log before it copies the log itself.
constexpr int64_t kCopiedPages = 1000;

constexpr char kCreateVersion[] =
    "CREATE TABLE IF NOT EXISTS schema_version ("
    "  id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL);"
    "INSERT OR IGNORE INTO schema_version (id, version) VALUES (1, 0);";

constexpr char kReadTerm[] = "SELECT term FROM leader";

// Runs each missing step in a transaction of its own. No other process uses the database.
absl::Status MigrateSqlite(Connection& connection, const Schema& schema) {
  connection.Execute(kCreateVersion);
  SchemaState state = ReadSchema(connection);
  RETURN_IF_ERROR(CheckSchema(state, schema));
  while (state.version < schema.version()) {
    const Migration& step = schema.migrations[state.version];
    state = NextState(state, schema);
    SQLite::Transaction transaction(connection.database());
    connection.Execute(step.sqlite);
    WriteSchema(connection, state);
    transaction.commit();
    FailPoint("engine.migration.step");
  }
  return absl::OkStatus();
}

int64_t ReadTerm(Connection& connection) {
  Query query = connection.Prepare(kReadTerm);
  query.Next();
  return query.Int();
}

// Adds the path of the file that has no room to the error of a full disk.
absl::Status WithVolume(const absl::Status& status, const std::string& path) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrFormat("the volume of '%s' is full (%s)", path, std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const Options& options) {
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<SqliteStore>> {
    ASSIGN_OR_RETURN(BodyFiles bodies, BodyFiles::Open(options.bodies_dir));
    std::unique_ptr<SqliteStore> store(new SqliteStore(options, std::move(bodies)));
    RETURN_IF_ERROR(store->Prepare(options.schema));
    return store;
  });
}

SqliteStore::SqliteStore(const Options& options, BodyFiles bodies)
    : database_(options.database.string()),
      bodies_(std::move(bodies)),
      writer_(database_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE),
      readers_(database_) {}

absl::Status SqliteStore::Prepare(const Schema& schema) {
  absl::MutexLock lock(&write_mu_);
  writer_.Execute(kPragmas);
  RETURN_IF_ERROR(MigrateSqlite(writer_, schema));
  SweepPayloads(writer_);
  bodies_.RemoveAllBut(LiveBodyIds(writer_));
  return absl::OkStatus();
}

absl::StatusOr<StoredState> SqliteStore::Load(int64_t term) {
  absl::MutexLock lock(&write_mu_);
  return Guarded([&]() -> absl::StatusOr<StoredState> {
    write_mu_.AssertHeld();
    RETURN_IF_ERROR(CheckTermLocked(term));
    StoredState state = LoadState(writer_, absl::GetCurrentTimeNanos(), /*has_indexes=*/true);
    state.term = term;
    return state;
  });
}

absl::Status SqliteStore::CheckTermLocked(int64_t term) {
  const int64_t current_term = ReadTerm(writer_);
  if (current_term == term) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("commit under term %d, the leader has term %d", term, current_term));
}

absl::Status SqliteStore::Commit(int64_t term, std::span<const Write> writes,
                                 std::span<const Blob> blobs) {
  std::vector<std::string> dropped_bodies;
  {
    absl::MutexLock lock(&write_mu_);
    const absl::Status status = Guarded([&] {
      write_mu_.AssertHeld();
      return CommitLocked(term, writes, blobs, dropped_bodies);
    });
    RETURN_IF_ERROR(WithVolume(status, writer_.database().getFilename()));
  }
  for (const std::string& body_id : dropped_bodies) bodies_.Remove(body_id);
  return absl::OkStatus();
}

absl::Status SqliteStore::CommitLocked(int64_t term, std::span<const Write> writes,
                                       std::span<const Blob> blobs,
                                       std::vector<std::string>& dropped_bodies) {
  BlobIndex index;
  for (const Blob& blob : blobs) index.emplace(blob.id, blob.bytes);
  WriteApplier applier(writer_, index);
  SQLite::Transaction transaction(writer_.database(), SQLite::TransactionBehavior::IMMEDIATE);
  RETURN_IF_ERROR(CheckTermLocked(term));
  for (const Write& write : writes) RETURN_IF_ERROR(applier.Apply(write));
  FailPoint("engine.commit.applied");
  transaction.commit();
  dropped_bodies = applier.dropped_bodies();
  return absl::OkStatus();
}

absl::Status SqliteStore::PurgePiece(int64_t term, PurgePass& pass) {
  bool is_log_long = false;
  {
    absl::MutexLock lock(&write_mu_);
    const absl::Time began = SteadyNow();
    RETURN_IF_ERROR(Guarded([&] {
      write_mu_.AssertHeld();
      return PurgeLocked(term, pass);
    }));
    piece_rows_ = NextPieceRows(piece_rows_, SteadyNow() - began);
    num_pages_logged_ += writer_.TakePagesWritten();
    is_log_long = num_pages_logged_ >= kCopiedPages;
  }
  return is_log_long ? CopyLog() : absl::OkStatus();
}

absl::Status SqliteStore::PurgeLocked(int64_t term, PurgePass& pass) {
  PurgePass advanced = pass;
  SQLite::Transaction transaction(writer_.database(), SQLite::TransactionBehavior::IMMEDIATE);
  RETURN_IF_ERROR(CheckTermLocked(term));
  const int64_t num_deleted = DeletePiece(writer_, piece_rows_, advanced);
  // In the same transaction, which costs one sync of the disk.
  if (num_deleted > 0) {
    const int64_t num_pages = std::max(kFewPages, num_deleted / kRowsPerPage);
    writer_.Execute(absl::StrFormat("PRAGMA incremental_vacuum(%d)", num_pages).c_str());
  }
  transaction.commit();
  pass = advanced;
  return absl::OkStatus();
}

absl::Status SqliteStore::CopyLog() {
  {
    absl::MutexLock lock(&copy_mu_);
    RETURN_IF_ERROR(Guarded([&] {
      copy_mu_.AssertHeld();
      if (!copier_) {
        copier_ = std::make_unique<Connection>(database_, SQLite::OPEN_READWRITE);
      }
      copier_->Execute(kCopyLog);
      return absl::OkStatus();
    }));
  }
  absl::MutexLock lock(&write_mu_);
  return Guarded([&] {
    write_mu_.AssertHeld();
    writer_.Execute(kCopyLog);
    writer_.TakePagesWritten();
    num_pages_logged_ = 0;
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::PutLargeBody(const std::string& body_id, const std::string& bytes) {
  return bodies_.Write(body_id, bytes);
}

void SqliteStore::DiscardLargeBody(const std::string& body_id) { bodies_.Remove(body_id); }

absl::StatusOr<std::string> SqliteStore::ReadBody(const std::string& body_id) {
  ASSIGN_OR_RETURN(std::optional<std::string> payload, ReadPayload(body_id));
  if (payload) return *std::move(payload);
  return bodies_.Read(body_id);
}

absl::Status SqliteStore::Read(const Work& work) { return readers_.Run(work); }

absl::Status SqliteStore::Change(const Work& work) {
  absl::MutexLock lock(&write_mu_);
  return Guarded([&] {
    write_mu_.AssertHeld();
    SQLite::Transaction transaction(writer_.database());
    RETURN_IF_ERROR(work(writer_));
    transaction.commit();
    return absl::OkStatus();
  });
}

}  // namespace lathe::engine
