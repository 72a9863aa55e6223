// The common part of the stores on a SQL database: reads, the rare writes outside the commits, and
// the state that a new leader starts with.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

class SqlStore : public Store {
 public:
  absl::StatusOr<LeaseRow> ReadLease() override;
  absl::StatusOr<int64_t> TakeLease(const LeaseRow& seen, const LeaseRow& lease) override;
  absl::Status RenewLease(int64_t term) override;
  absl::Status ReleaseLease(int64_t term) override;
  absl::StatusOr<StoredState> TakeLeadership() override;
  absl::StatusOr<std::optional<RequestStatus>> FindRequest(const std::string& tenant_id,
                                                           const std::string& request_id) override;
  absl::StatusOr<std::optional<RequestRow>> FindRequestByKey(const std::string& tenant_id,
                                                             const std::string& owner_id,
                                                             OpClass op_class,
                                                             int64_t seq_id) override;
  absl::StatusOr<std::optional<StoredResult>> ReadResult(const std::string& tenant_id,
                                                         const std::string& request_id) override;
  absl::StatusOr<std::optional<StoredResult>> ReadAnyResult(const std::string& request_id) override;
  absl::StatusOr<std::vector<CompletionRow>> ListUndeliveredSamples() override;
  absl::StatusOr<std::optional<SessionRow>> FindSession(const std::string& tenant_id,
                                                        const std::string& session_id) override;
  absl::StatusOr<Page<SessionRow>> ListSessions(const std::string& tenant_id, int64_t limit,
                                                int64_t offset) override;
  absl::StatusOr<std::optional<ModelRow>> FindModel(const std::string& tenant_id,
                                                    const std::string& model_id) override;
  absl::StatusOr<Page<ModelRow>> ListModels(const std::string& tenant_id, int64_t limit,
                                            int64_t offset) override;
  absl::StatusOr<Page<ModelRow>> ListModelsOfProject(const std::string& tenant_id,
                                                     const std::string& project_id, int64_t limit,
                                                     int64_t offset) override;
  absl::StatusOr<SessionPage> SearchSessions(const std::string& tenant_id,
                                             const SessionQuery& query) override;
  absl::StatusOr<std::vector<std::string>> ModelIdsOfSession(
      const std::string& tenant_id, const std::string& session_id) override;
  absl::StatusOr<std::vector<std::string>> SamplerIdsOfSession(
      const std::string& tenant_id, const std::string& session_id) override;
  absl::StatusOr<std::optional<SamplerRow>> FindSampler(
      const std::string& tenant_id, const std::string& sampling_session_id) override;
  absl::StatusOr<std::optional<CheckpointRow>> FindCheckpoint(const std::string& tenant_id,
                                                              const std::string& tinker_path,
                                                              int64_t now) override;
  absl::StatusOr<Page<CheckpointRow>> ListCheckpoints(const std::string& tenant_id,
                                                      const std::string& model_id, int64_t now,
                                                      bool with_external, int64_t limit,
                                                      int64_t offset) override;
  absl::StatusOr<std::vector<CheckpointRow>> NewestCheckpoints(
      const std::string& tenant_id, std::span<const std::string> model_ids, int64_t now) override;
  absl::StatusOr<int64_t> StoredBytes(const std::string& tenant_id) override;
  absl::StatusOr<StoredUse> StoredUseOfSession(const std::string& tenant_id,
                                               const std::string& session_id, int64_t now) override;
  absl::StatusOr<std::vector<ProjectUse>> StoredUseByProject(const std::string& tenant_id,
                                                             int64_t now) override;
  absl::StatusOr<std::vector<SessionUsage>> ListUsage(const std::string& tenant_id, int64_t from,
                                                      int64_t until, int64_t limit) override;
  absl::StatusOr<std::vector<TenantRow>> ListTenants() override;
  absl::Status PutTenant(const TenantRow& row) override;
  absl::StatusOr<std::vector<ApiKeyRow>> ListKeys() override;
  absl::Status PutKeys(std::span<const ApiKeyRow> rows, const AuditRow& audit) override;
  absl::StatusOr<StoredUsers> ListUsers(int64_t now) override;
  absl::Status ChangeUsers(const UserChange& change) override;
  absl::Status AppendAudit(const AuditRow& row) override;
  absl::StatusOr<std::vector<AuditRow>> ListAudit(const std::string& tenant_id,
                                                  const std::string& resource, int64_t from,
                                                  int64_t until, int64_t limit) override;
  absl::StatusOr<AuditPage> ExportAudit(int64_t before, int64_t after_id, int64_t limit) override;
  absl::Status PruneAudit(const AuditPiece& piece, const AuditRow& record) override;
  absl::StatusOr<std::vector<JournalRow>> ReadPointJournal(int64_t after,
                                                           int64_t max_rows) override;
  absl::StatusOr<int64_t> TrimPointJournal(int64_t through, int64_t max_rows) override;
  absl::Status WriteSeries(std::span<const SeriesFold> folds) override;
  absl::StatusOr<std::optional<RunSeriesRow>> FindRunSeries(const std::string& run_id) override;
  absl::StatusOr<std::vector<SeriesRow>> ListSeries(const std::string& run_id,
                                                    bool with_tails) override;
  absl::StatusOr<std::optional<SeriesRow>> FindSeries(const std::string& run_id,
                                                      const std::string& name) override;
  absl::StatusOr<std::vector<SeriesChunkRow>> ReadSeriesChunks(const std::string& run_id,
                                                               const std::string& name,
                                                               int64_t level,
                                                               const ChunkRange& range) override;
  absl::StatusOr<int64_t> CountSeriesBuckets(const std::string& run_id, const std::string& name,
                                             int64_t level, int64_t from_step,
                                             int64_t to_step) override;
  absl::StatusOr<std::optional<int64_t>> FirstSeriesChunk(const std::string& run_id,
                                                          const std::string& name,
                                                          int64_t level) override;
  absl::StatusOr<int64_t> CountSeries(const std::string& tenant_id) override;
  absl::StatusOr<int64_t> DeleteOldSeries(int64_t before, int64_t max_rows) override;
  absl::StatusOr<std::string> Secret(const std::string& name) override;
  absl::StatusOr<bool> HasSecret(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> NamedDirs() override;

 protected:
  using Work = std::function<absl::Status(SqlConnection&)>;

  // Runs `work` on a connection for reads and turns its exceptions into a Status. Any thread. May
  // run `work` again when a connection breaks.
  virtual absl::Status Read(const Work& work) = 0;
  // Like Read, for listings and searches: work that looks at many rows. It must not delay the other
  // reads.
  virtual absl::Status List(const Work& work) { return Read(work); }
  // Runs `work` once, in a transaction on a connection for writes.
  virtual absl::Status Change(const Work& work) = 0;
  // Like Change, for folds of metrics, which fence themselves: it must not delay commits.
  virtual absl::Status ChangeSeries(const Work& work) { return Change(work); }
  // Like Change, for the lease: any process may call it, leader or not, and it does not wait for
  // long.
  virtual absl::Status OnLease(const Work& work) { return Change(work); }

  // NamedDirs on a connection. Throws its exceptions.
  static std::vector<std::string> ReadNamedDirs(SqlConnection& connection);

  // Reads a body from the database; nullopt when it is not there.
  absl::StatusOr<std::optional<std::string>> ReadPayload(const std::string& body_id);

 private:
  // Read() and List() for a function that returns a StatusOr.
  template <typename Function>
  auto Reading(const Function& function) {
    return Returning([this](const Work& work) { return Read(work); }, function);
  }
  template <typename Function>
  auto Listing(const Function& function) {
    return Returning([this](const Work& work) { return List(work); }, function);
  }
  template <typename Run, typename Function>
  static auto Returning(const Run& run, const Function& function) {
    using Result = std::invoke_result_t<const Function&, SqlConnection&>;
    std::optional<Result> result;
    const absl::Status status = run([&](SqlConnection& connection) {
      result.emplace(function(connection));
      return result->status();
    });
    return status.ok() ? *std::move(result) : Result(status);
  }
};

// Reads everything but the term, as of time `now`. `has_indexes`: see ReadNeededRequests. Throws
// the exceptions of `connection`.
StoredState LoadState(SqlConnection& connection, int64_t now, bool has_indexes);

// Returns true if an engine has made the secret `name`. Throws the exceptions of `connection`.
bool HasSecret(SqlConnection& connection, const std::string& name);

}  // namespace lathe::engine
