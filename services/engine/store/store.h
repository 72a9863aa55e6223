// Durable state of the engine. All SQL is in the subdirectories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/engine/store/rows.h"
#include "services/engine/store/series_rows.h"
#include "services/engine/store/session_query.h"
#include "services/engine/store/user_rows.h"

namespace lathe::engine {

struct TenantRow {
  std::string tenant_id;
  std::string name;
  int64_t created_at = 0;
};

struct ApiKeyRow {
  std::string key_id;
  std::string tenant_id;
  std::string name;
  std::string secret_sha256;  // hex digest of the whole key
  std::vector<std::string> scopes;
  int64_t created_at = 0;
  int64_t expires_at = 0;  // 0: never
  int64_t revoked_at = 0;  // 0: live
};

// Bytes that belong to a commit: bodies of new requests, results of completed ones.
struct Blob {
  std::string id;          // body_id or result_id
  std::string_view bytes;  // borrowed until Commit returns
};

struct StoredResult {
  std::string bytes;  // encoded lathe.v1.OperationResult
};

struct RequestStatus {
  OperationKind kind = OperationKind::kForwardBackward;
  RequestState state = RequestState::kAccepted;
  // True if it is finished and its result was removed, by retention or by a limit of the tenant.
  bool result_expired = false;
};

// Largest number of rows behind the start of a page that total_count counts.
inline constexpr int64_t kMaxCountedRows = 10'000;

// One page of a listing, newest first.
template <typename Row>
struct Page {
  std::vector<Row> rows;
  // Number of rows in the whole listing. If more than kMaxCountedRows follow the start of the page,
  // only so many of them count.
  int64_t total_count = 0;
};

// Storage that a set of checkpoints takes.
struct StoredUse {
  int64_t num_checkpoints = 0;
  int64_t stored_bytes = 0;
};

// Storage of the sessions of one project.
struct ProjectUse {
  std::string project_id;  // empty: the sessions that are in no project
  StoredUse use;
};

// A usage row with the current project and metadata of its session.
struct SessionUsage {
  UsageRow row;
  std::string project_id;
  Metadata user_metadata;
};

// An entry of the audit log with its number. Numbers grow and are never used twice.
struct NumberedAudit {
  int64_t id = 0;
  AuditRow row;
};

// Some entries of the audit log in the order of their numbers.
struct AuditPage {
  std::vector<NumberedAudit> entries;
  // Largest number that was looked at; unset: there is none above `after_id`.
  std::optional<int64_t> last_id;
};

// Entries of the audit log: those with numbers in (after_id, through_id] and a time before
// `before`, of all tenants.
struct AuditPiece {
  int64_t before = 0;
  int64_t after_id = 0;
  int64_t through_id = 0;
  int64_t num_entries = 0;
};

// Lease of the leader. It lapses `duration` after its last renewal; each process that waits for it
// measures that time by itself.
struct LeaseRow {
  int64_t term = 0;
  std::string process;                             // name of the process, see ThisProcess
  std::string address;                             // address where it serves
  absl::Duration duration = absl::ZeroDuration();  // zero: no process holds the lease
  int64_t num_renewals = 0;
};

struct OpenTransaction {
  absl::Duration age;
  std::string holder;  // description for people: "pid 12 of psql (idle in transaction)"
};

// The chunks of one level of a series that a read takes.
struct ChunkRange {
  int64_t from_number = 0;
  int64_t before_number = 0;
  int64_t from_step = 0;  // both steps are included
  int64_t to_step = 0;
};

// Progress of one purge.
struct PurgePass {
  enum class Phase { kDone, kDelivered, kRows, kUsage, kOver };

  PurgeResults what;
  Phase phase = Phase::kDone;
  // Place of the last request row that the purge has looked at: its done_at, and its row number.
  int64_t rows_at = 0;
  int64_t rows_rowid = 0;
};

// Largest number of rows that one piece of a purge deletes from a table. So a commit that waits for
// a piece does not wait for long.
inline constexpr int64_t kMaxPurgedRows = 500;

// Thread-safe. Reads see every finished Commit.
class Store {
 public:
  virtual ~Store() = default;

  virtual absl::StatusOr<LeaseRow> ReadLease() = 0;
  // Makes this process the leader under a new term, and returns the term. Returns Aborted when the
  // lease differs from `seen`, because it was taken or renewed since. Of `lease`, only process,
  // address and duration are used.
  virtual absl::StatusOr<int64_t> TakeLease(const LeaseRow& seen, const LeaseRow& lease) = 0;
  // Returns FailedPrecondition when another process has taken the lease.
  virtual absl::Status RenewLease(int64_t term) = 0;
  // Ends the lease early, so that other processes need not wait for it to lapse. Does nothing when
  // another process has taken it.
  virtual absl::Status ReleaseLease(int64_t term) = 0;
  // Brings the schema to this binary's version, as the leader of `term`. Called before Load. Does
  // nothing in a store that no other process can open, and whose Open has done it. Returns Aborted
  // when another process leads by now, and FailedPrecondition when this binary cannot use the
  // schema any more.
  virtual absl::Status Migrate(int64_t term) {
    static_cast<void>(term);
    return absl::OkStatus();
  }
  // Makes the indexes that Migrate left out because they take long, and returns when they are
  // there. Commits and reads go on meanwhile; they need none of these indexes, but some reads are
  // slow without. Returns Unavailable while another engine makes them. A call that failed may be
  // repeated. Any thread.
  virtual absl::Status MakeIndexes() { return absl::OkStatus(); }
  // Reads everything a leader needs to continue, once no other process can commit. Returns
  // FailedPrecondition when `term` is old.
  virtual absl::StatusOr<StoredState> Load(int64_t term) = 0;
  // Makes this process the leader at once, whichever process leads. Meant for stores that no other
  // process can open.
  virtual absl::StatusOr<StoredState> TakeLeadership() = 0;

  // Returns the transaction, of any program, that has been open longest in the database. Returns
  // null when there is none, or when no other process shares the store. While it is open, the
  // database cannot reuse the space of removed rows.
  virtual absl::StatusOr<std::optional<OpenTransaction>> OldestTransaction() {
    return std::nullopt;
  }

  // Called when the process ends. From here on, calls that would wait for an absent database fail
  // as Unavailable instead.
  virtual void GiveUp() {}

  // Makes all writes of the call durable together, in order, before it returns. One thread calls
  // this and merges the writes that arrived during the last commit (group commit). Returns
  // FailedPrecondition when `term` is old.
  virtual absl::Status Commit(int64_t term, std::span<const Write> writes,
                              std::span<const Blob> blobs) = 0;

  // Deletes the next piece of what retention no longer keeps, in a transaction of its own, and
  // advances `pass` up to the phase kOver. A piece without anything due costs a look into an index.
  // Commits may go between two pieces. Returns FailedPrecondition when `term` is old. Any thread.
  virtual absl::Status PurgePiece(int64_t term, PurgePass& pass) = 0;

  // Stores a body larger than kInlineBodyBytes durably, before its row joins a commit. Any thread.
  virtual absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) = 0;
  // Removes the body of a PutLargeBody whose row was never committed. Any thread.
  virtual void DiscardLargeBody(const std::string& body_id) = 0;
  // Returns NotFound when no such body is stored.
  virtual absl::StatusOr<std::string> ReadBody(const std::string& body_id) = 0;

  // Returns the tenant's request that has the key now.
  virtual absl::StatusOr<std::optional<RequestRow>> FindRequestByKey(const std::string& tenant_id,
                                                                     const std::string& owner_id,
                                                                     OpClass op_class,
                                                                     int64_t seq_id) = 0;
  // Reads a result for the engine itself, whichever tenant's it is.
  virtual absl::StatusOr<std::optional<StoredResult>> ReadAnyResult(
      const std::string& request_id) = 0;
  // Returns the undelivered samples of all tenants, ordered by completion_number.
  virtual absl::StatusOr<std::vector<CompletionRow>> ListUndeliveredSamples() = 0;

  // In the reads below, the caller's tenant is part of the query: objects of other tenants are
  // absent.
  virtual absl::StatusOr<std::optional<RequestStatus>> FindRequest(
      const std::string& tenant_id, const std::string& request_id) = 0;
  virtual absl::StatusOr<std::optional<StoredResult>> ReadResult(const std::string& tenant_id,
                                                                 const std::string& request_id) = 0;
  virtual absl::StatusOr<std::optional<SessionRow>> FindSession(const std::string& tenant_id,
                                                                const std::string& session_id) = 0;
  virtual absl::StatusOr<Page<SessionRow>> ListSessions(const std::string& tenant_id, int64_t limit,
                                                        int64_t offset) = 0;
  virtual absl::StatusOr<std::optional<ModelRow>> FindModel(const std::string& tenant_id,
                                                            const std::string& model_id) = 0;
  virtual absl::StatusOr<Page<ModelRow>> ListModels(const std::string& tenant_id, int64_t limit,
                                                    int64_t offset) = 0;
  // Like ListModels, for the sessions of one project.
  virtual absl::StatusOr<Page<ModelRow>> ListModelsOfProject(const std::string& tenant_id,
                                                             const std::string& project_id,
                                                             int64_t limit, int64_t offset) = 0;
  // Returns the newest sessions first, at most query.limit. Looks at kMaxSearchedSessions at most,
  // so a page may have fewer rows, or none, and still be followed by another one.
  virtual absl::StatusOr<SessionPage> SearchSessions(const std::string& tenant_id,
                                                     const SessionQuery& query) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ModelIdsOfSession(
      const std::string& tenant_id, const std::string& session_id) = 0;
  virtual absl::StatusOr<std::vector<std::string>> SamplerIdsOfSession(
      const std::string& tenant_id, const std::string& session_id) = 0;
  virtual absl::StatusOr<std::optional<SamplerRow>> FindSampler(
      const std::string& tenant_id, const std::string& sampling_session_id) = 0;
  // Finds a checkpoint that is the tenant's own or public, complete, and not expired at `now`.
  virtual absl::StatusOr<std::optional<CheckpointRow>> FindCheckpoint(
      const std::string& tenant_id, const std::string& tinker_path, int64_t now) = 0;
  // Lists the checkpoints of a model; empty model_id: all of the tenant's. With `with_external`,
  // the list includes those of kind kExternal.
  virtual absl::StatusOr<Page<CheckpointRow>> ListCheckpoints(const std::string& tenant_id,
                                                              const std::string& model_id,
                                                              int64_t now, bool with_external,
                                                              int64_t limit, int64_t offset) = 0;

  // Returns of each model the newest training checkpoint and the newest one for samplers, in no
  // order. Only checkpoints count that are complete and not expired at `now`. The number of
  // statements is that of hundreds of models.
  virtual absl::StatusOr<std::vector<CheckpointRow>> NewestCheckpoints(
      const std::string& tenant_id, std::span<const std::string> model_ids, int64_t now) = 0;

  // Returns the total size of the tenant's complete checkpoints.
  virtual absl::StatusOr<int64_t> StoredBytes(const std::string& tenant_id) = 0;

  // Returns the storage of checkpoints that are complete and not expired at `now`.
  virtual absl::StatusOr<StoredUse> StoredUseOfSession(const std::string& tenant_id,
                                                       const std::string& session_id,
                                                       int64_t now) = 0;
  // Returns the same storage by project, sorted by project id.
  virtual absl::StatusOr<std::vector<ProjectUse>> StoredUseByProject(const std::string& tenant_id,
                                                                     int64_t now) = 0;
  // Returns the usage of the hours in [from, until), oldest first, at most `limit` rows.
  virtual absl::StatusOr<std::vector<SessionUsage>> ListUsage(const std::string& tenant_id,
                                                              int64_t from, int64_t until,
                                                              int64_t limit) = 0;

  virtual absl::StatusOr<std::vector<TenantRow>> ListTenants() = 0;
  virtual absl::Status PutTenant(const TenantRow& row) = 0;
  virtual absl::StatusOr<std::vector<ApiKeyRow>> ListKeys() = 0;
  // Writes the keys and the audit entry in one transaction.
  virtual absl::Status PutKeys(std::span<const ApiKeyRow> rows, const AuditRow& audit) = 0;

  // Returns every user, role binding and unexpired session. They are bounded, see UserBook.
  virtual absl::StatusOr<StoredUsers> ListUsers(int64_t now) = 0;
  // Makes all parts of the change durable in one transaction.
  virtual absl::Status ChangeUsers(const UserChange& change) = 0;

  virtual absl::Status AppendAudit(const AuditRow& row) = 0;
  // Returns the newest `limit` of the tenant's entries in [from, until), oldest first. Empty
  // `resource`: all resources.
  virtual absl::StatusOr<std::vector<AuditRow>> ListAudit(const std::string& tenant_id,
                                                          const std::string& resource, int64_t from,
                                                          int64_t until, int64_t limit) = 0;

  // Looks at the first `limit` entries of all tenants with a number above `after_id`, and returns
  // those with a time before `before`.
  virtual absl::StatusOr<AuditPage> ExportAudit(int64_t before, int64_t after_id,
                                                int64_t limit) = 0;
  // Deletes the entries of the piece and appends `record`, in one transaction. Returns
  // FailedPrecondition and deletes nothing if they are not num_entries. Nothing else can delete an
  // entry.
  virtual absl::Status PruneAudit(const AuditPiece& piece, const AuditRow& record) = 0;

  // ---- Kept metrics. A write AppendPoints puts a batch into the journal. One thread of the leader
  // folds the journal into series.

  // Returns the first `max_rows` rows of the journal with an id above `after`, in that order.
  virtual absl::StatusOr<std::vector<JournalRow>> ReadPointJournal(int64_t after,
                                                                   int64_t max_rows) = 0;
  // Deletes the first `max_rows` batches up to this id. Every run has folded them. Returns their
  // number.
  virtual absl::StatusOr<int64_t> TrimPointJournal(int64_t through, int64_t max_rows) = 0;
  // Makes the folds durable in one transaction. Returns FailedPrecondition, and changes nothing, if
  // a later batch is folded into one of the runs already: another process leads.
  virtual absl::Status WriteSeries(std::span<const SeriesFold> folds) = 0;
  virtual absl::StatusOr<std::optional<RunSeriesRow>> FindRunSeries(const std::string& run_id) = 0;
  // Returns the series of a run, sorted by name. Without tails, they are heads.
  virtual absl::StatusOr<std::vector<SeriesRow>> ListSeries(const std::string& run_id,
                                                            bool with_tails) = 0;
  // Returns one series with its tail.
  virtual absl::StatusOr<std::optional<SeriesRow>> FindSeries(const std::string& run_id,
                                                              const std::string& name) = 0;
  // Returns chunks in the order of their numbers: those that overlap the range.
  virtual absl::StatusOr<std::vector<SeriesChunkRow>> ReadSeriesChunks(const std::string& run_id,
                                                                       const std::string& name,
                                                                       int64_t level,
                                                                       const ChunkRange& range) = 0;
  // Returns the number of buckets in the chunks of a level that overlap these steps.
  virtual absl::StatusOr<int64_t> CountSeriesBuckets(const std::string& run_id,
                                                     const std::string& name, int64_t level,
                                                     int64_t from_step, int64_t to_step) = 0;
  // Returns the number of the oldest chunk of a level; nullopt: there is none.
  virtual absl::StatusOr<std::optional<int64_t>> FirstSeriesChunk(const std::string& run_id,
                                                                  const std::string& name,
                                                                  int64_t level) = 0;
  // Returns the number of series of all runs of a tenant.
  virtual absl::StatusOr<int64_t> CountSeries(const std::string& tenant_id) = 0;
  // Deletes a piece of the oldest run whose last fold was before `before`, chunks first, at most
  // `max_rows` rows of a table. Returns the number of deleted rows; 0: nothing is due.
  virtual absl::StatusOr<int64_t> DeleteOldSeries(int64_t before, int64_t max_rows) = 0;

  // Returns a secret that is created on first use and kept in the store, e.g. the key that signs
  // archive URLs.
  virtual absl::StatusOr<std::string> Secret(const std::string& name) = 0;
  // Returns whether that secret was created.
  virtual absl::StatusOr<bool> HasSecret(const std::string& name) = 0;
  // Returns the directories of complete checkpoints, and of the snapshots and versions of models
  // that a new leader loads; sorted.
  virtual absl::StatusOr<std::vector<std::string>> NamedDirs() = 0;
};

inline constexpr int64_t kInlineBodyBytes = 64 * 1024;

}  // namespace lathe::engine
