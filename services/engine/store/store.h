// Durable state of the engine. SQL lives only in the folders below this one.
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
#include "services/engine/store/session_query.h"

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
  std::string secret_sha256;  // hex, of the whole key
  std::vector<std::string> scopes;
  int64_t created_at = 0;
  int64_t expires_at = 0;  // 0: never
  int64_t revoked_at = 0;  // 0: live
};

// Bytes that travel beside a commit: bodies of new requests, results of completed ones.
struct Blob {
  std::string id;          // body_id or result_id
  std::string_view bytes;  // borrowed until Commit returns
};

struct StoredResult {
  std::string bytes;  // encoded lathe.v1.OperationResult
};

struct RequestStatus {
  std::string tenant_id;
  OperationKind kind = OperationKind::kForwardBackward;
  RequestState state = RequestState::kAccepted;
  bool result_expired = false;  // finished, but retention removed the result
};

// A page of a listing, newest first, and how many rows there are in all.
template <typename Row>
struct Page {
  std::vector<Row> rows;
  int64_t total_count = 0;
};

// What some checkpoints hold together.
struct StoredUse {
  int64_t num_checkpoints = 0;
  int64_t stored_bytes = 0;
};

struct ProjectUse {
  std::string project_id;  // empty: of sessions in none
  StoredUse use;
};

// Usage with what its session says now.
struct SessionUsage {
  UsageRow row;
  std::string project_id;
  Metadata user_metadata;
};

// Who leads, and for how long after each renewal; times are measured by whoever waits for them.
struct LeaseRow {
  int64_t term = 0;
  std::string process;                             // as ThisProcess says
  std::string address;                             // where it serves
  absl::Duration duration = absl::ZeroDuration();  // zero: nobody has it
  int64_t num_renewals = 0;
};

struct OpenTransaction {
  absl::Duration age;
  std::string holder;  // for people: "pid 12 of psql (idle in transaction)"
};

// Thread-safe. Reads see every finished Commit.
class Store {
 public:
  virtual ~Store() = default;

  virtual absl::StatusOr<LeaseRow> ReadLease() = 0;
  // Becomes the leader under a new term, which is returned. Aborted when the lease is not as it was
  // in `seen`: it was taken or renewed since. Of `lease`, process, address and duration count.
  virtual absl::StatusOr<int64_t> TakeLease(const LeaseRow& seen, const LeaseRow& lease) = 0;
  // FailedPrecondition when somebody else has taken it.
  virtual absl::Status RenewLease(int64_t term) = 0;
  // Nobody needs to wait for its end. Does nothing when somebody else has taken it.
  virtual absl::Status ReleaseLease(int64_t term) = 0;
  // Everything a leader needs to go on, as it is once nobody else can commit. FailedPrecondition
  // under an old term.
  virtual absl::StatusOr<StoredState> Load(int64_t term) = 0;
  // Becomes the leader at once, whoever leads: for stores that no other process can open.
  virtual absl::StatusOr<StoredState> TakeLeadership() = 0;

  // The one, of whatever program, that is open in the database for the longest; null: there is
  // none, or the store is nobody else's. While it is open, the space of removed rows is not used
  // again.
  virtual absl::StatusOr<std::optional<OpenTransaction>> OldestTransaction() {
    return std::nullopt;
  }

  // The process ends: from now on nothing waits for a database that is away, and fails as
  // Unavailable instead.
  virtual void GiveUp() {}

  // All writes of one call become durable together, in order, before this returns. Called by one
  // thread, which merges what arrived while the last commit ran (group commit).
  // Refused with FailedPrecondition under an old term.
  virtual absl::Status Commit(int64_t term, std::span<const Write> writes,
                              std::span<const Blob> blobs) = 0;

  // Makes durable a body larger than kInlineBodyBytes before its row joins a commit. Any thread.
  virtual absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) = 0;
  // Takes back a PutLargeBody whose row was never committed. Any thread.
  virtual void DiscardLargeBody(const std::string& body_id) = 0;
  // NotFound when no such body is stored.
  virtual absl::StatusOr<std::string> ReadBody(const std::string& body_id) = 0;

  virtual absl::StatusOr<std::optional<RequestStatus>> FindRequest(
      const std::string& request_id) = 0;
  // That has the key now; of the tenant.
  virtual absl::StatusOr<std::optional<RequestRow>> FindRequestByKey(const std::string& tenant_id,
                                                                     const std::string& owner_id,
                                                                     OpClass op_class,
                                                                     int64_t seq_id) = 0;
  virtual absl::StatusOr<std::optional<StoredResult>> ReadResult(const std::string& request_id) = 0;
  // Of all tenants, by completion_number.
  virtual absl::StatusOr<std::vector<CompletionRow>> ListUndeliveredSamples() = 0;

  // Every read takes the caller's tenant as part of the query; foreign objects are absent.
  virtual absl::StatusOr<std::optional<SessionRow>> FindSession(const std::string& tenant_id,
                                                                const std::string& session_id) = 0;
  virtual absl::StatusOr<Page<SessionRow>> ListSessions(const std::string& tenant_id, int64_t limit,
                                                        int64_t offset) = 0;
  virtual absl::StatusOr<std::optional<ModelRow>> FindModel(const std::string& tenant_id,
                                                            const std::string& model_id) = 0;
  virtual absl::StatusOr<Page<ModelRow>> ListModels(const std::string& tenant_id, int64_t limit,
                                                    int64_t offset) = 0;
  // As ListModels, for the sessions of one project.
  virtual absl::StatusOr<Page<ModelRow>> ListModelsOfProject(const std::string& tenant_id,
                                                             const std::string& project_id,
                                                             int64_t limit, int64_t offset) = 0;
  // Newest first, at most query.limit.
  virtual absl::StatusOr<std::vector<SessionRow>> SearchSessions(const std::string& tenant_id,
                                                                 const SessionQuery& query) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ModelIdsOfSession(
      const std::string& session_id) = 0;
  virtual absl::StatusOr<std::vector<std::string>> SamplerIdsOfSession(
      const std::string& session_id) = 0;
  virtual absl::StatusOr<std::optional<SamplerRow>> FindSampler(
      const std::string& tenant_id, const std::string& sampling_session_id) = 0;
  // Own or public, complete and not expired at `now`.
  virtual absl::StatusOr<std::optional<CheckpointRow>> FindCheckpoint(
      const std::string& tenant_id, const std::string& tinker_path, int64_t now) = 0;
  // Empty model_id: all of the tenant's. `with_external`: those of kind kExternal too.
  virtual absl::StatusOr<Page<CheckpointRow>> ListCheckpoints(const std::string& tenant_id,
                                                              const std::string& model_id,
                                                              int64_t now, bool with_external,
                                                              int64_t limit, int64_t offset) = 0;

  // What the tenant's complete checkpoints hold.
  virtual absl::StatusOr<int64_t> StoredBytes(const std::string& tenant_id) = 0;

  // Of checkpoints that are complete and not expired at `now`.
  virtual absl::StatusOr<StoredUse> StoredUseOfSession(const std::string& tenant_id,
                                                       const std::string& session_id,
                                                       int64_t now) = 0;
  // The same by project; sorted by its id.
  virtual absl::StatusOr<std::vector<ProjectUse>> StoredUseByProject(const std::string& tenant_id,
                                                                     int64_t now) = 0;
  // Hours in [from, until), oldest first, at most `limit` rows.
  virtual absl::StatusOr<std::vector<SessionUsage>> ListUsage(const std::string& tenant_id,
                                                              int64_t from, int64_t until,
                                                              int64_t limit) = 0;

  virtual absl::StatusOr<std::vector<TenantRow>> ListTenants() = 0;
  virtual absl::Status PutTenant(const TenantRow& row) = 0;
  virtual absl::StatusOr<std::vector<ApiKeyRow>> ListKeys() = 0;
  // Writes the keys, and what the audit log says of it, together.
  virtual absl::Status PutKeys(std::span<const ApiKeyRow> rows, const AuditRow& audit) = 0;

  virtual absl::Status AppendAudit(const AuditRow& row) = 0;
  // The tenant's entries in [from, until), oldest first, the newest `limit` of them. Empty
  // `resource`: all.
  virtual absl::StatusOr<std::vector<AuditRow>> ListAudit(const std::string& tenant_id,
                                                          const std::string& resource, int64_t from,
                                                          int64_t until, int64_t limit) = 0;

  // A secret made on first use and kept in the store, e.g. the key that signs archive URLs.
  virtual absl::StatusOr<std::string> Secret(const std::string& name) = 0;
};

inline constexpr int64_t kInlineBodyBytes = 64 * 1024;

}  // namespace lathe::engine
