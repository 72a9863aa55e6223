#include "services/engine/store/sqlite/sqlite_store.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/sqlite/load_state.h"
#include "services/engine/store/sqlite/migrations.h"
#include "services/engine/store/sqlite/row_codec.h"
#include "services/engine/store/sqlite/writes.h"

namespace lathe::engine {
namespace {

// auto_vacuum must come before the first table.
constexpr char kPragmas[] =
    "PRAGMA auto_vacuum = INCREMENTAL;"
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;";
// Pages given back to the file system after a purge; bounds the time one purge may take.
constexpr char kShrink[] = "PRAGMA incremental_vacuum(256)";

constexpr char kRaiseTerm[] = "UPDATE leader SET term = term + 1";
constexpr char kReadTerm[] = "SELECT term FROM leader";
constexpr char kPutTenant[] =
    "INSERT OR REPLACE INTO tenants (tenant_id, name, created_at) VALUES (?, ?, ?)";
constexpr char kInsertSecret[] = "INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)";
constexpr char kReadSecret[] = "SELECT value FROM secrets WHERE name = ?";
constexpr size_t kSecretBytes = 32;

int64_t ReadTerm(Connection& connection) {
  Query query = connection.Prepare(kReadTerm);
  query.Next();
  return query.Int();
}

bool HasPurge(std::span<const Write> writes) {
  for (const Write& write : writes) {
    if (std::holds_alternative<PurgeResults>(write)) return true;
  }
  return false;
}

absl::Status Shrink(Connection& connection) {
  connection.Execute(kShrink);
  return absl::OkStatus();
}

// A full disk is told with the file that has no room.
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
    RETURN_IF_ERROR(store->Prepare());
    return store;
  });
}

SqliteStore::SqliteStore(const Options& options, BodyFiles bodies)
    : bodies_(std::move(bodies)),
      writer_(options.database.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE),
      readers_(options.database.string()) {}

absl::Status SqliteStore::Prepare() {
  absl::MutexLock lock(&write_mu_);
  writer_.Execute(kPragmas);
  RETURN_IF_ERROR(Migrate(writer_));
  SweepPayloads(writer_);
  bodies_.RemoveAllBut(LiveBodyIds(writer_));
  return absl::OkStatus();
}

absl::StatusOr<StoredState> SqliteStore::TakeLeadership() {
  absl::MutexLock lock(&write_mu_);
  return Guarded([&]() -> absl::StatusOr<StoredState> {
    SQLite::Transaction transaction(writer_.database());
    writer_.Prepare(kRaiseTerm).Run();
    StoredState state = LoadState(writer_);
    state.term = ReadTerm(writer_);
    transaction.commit();
    return state;
  });
}

absl::Status SqliteStore::Commit(int64_t term, std::span<const Write> writes,
                                 std::span<const Blob> blobs) {
  std::vector<std::string> dropped_bodies;
  {
    absl::MutexLock lock(&write_mu_);
    RETURN_IF_ERROR(
        WithVolume(Guarded([&] { return CommitLocked(term, writes, blobs, dropped_bodies); }),
                   writer_.database().getFilename()));
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
  const int64_t current_term = ReadTerm(writer_);
  if (current_term != term) {
    return absl::FailedPreconditionError(
        absl::StrFormat("commit under term %d, the leader has term %d", term, current_term));
  }
  for (const Write& write : writes) RETURN_IF_ERROR(applier.Apply(write));
  FailPoint("engine.commit.applied");
  transaction.commit();
  dropped_bodies = applier.dropped_bodies();
  // The commit stands, whatever becomes of this.
  if (HasPurge(writes)) Guarded([this] { return Shrink(writer_); }).IgnoreError();
  return absl::OkStatus();
}

absl::Status SqliteStore::PutLargeBody(const std::string& body_id, const std::string& bytes) {
  return bodies_.Write(body_id, bytes);
}

void SqliteStore::DiscardLargeBody(const std::string& body_id) { bodies_.Remove(body_id); }

absl::Status SqliteStore::PutTenant(const TenantRow& row) {
  absl::MutexLock lock(&write_mu_);
  return Guarded([&] {
    writer_.Prepare(kPutTenant).Bind(row.tenant_id, row.name, row.created_at).Run();
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::PutKeys(std::span<const ApiKeyRow> rows, const AuditRow& audit) {
  static const std::string sql = ReplaceSql("api_keys", kKeyColumns);
  absl::MutexLock lock(&write_mu_);
  return Guarded([&] {
    SQLite::Transaction transaction(writer_.database());
    for (const ApiKeyRow& row : rows) {
      Query query = writer_.Prepare(sql);
      BindRow(query, row);
      query.Run();
    }
    InsertAudit(writer_, audit);
    transaction.commit();
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::AppendAudit(const AuditRow& row) {
  absl::MutexLock lock(&write_mu_);
  return Guarded([&] {
    InsertAudit(writer_, row);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> SqliteStore::Secret(const std::string& name) {
  const std::string fresh = RandomBytes(kSecretBytes);
  absl::MutexLock lock(&write_mu_);
  return Guarded([&]() -> absl::StatusOr<std::string> {
    writer_.Prepare(kInsertSecret).Bind(name).BindBytes(fresh).Run();
    Query query = writer_.Prepare(kReadSecret);
    query.Bind(name).Next();
    return query.Bytes();
  });
}

}  // namespace lathe::engine
