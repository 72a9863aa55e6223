// The store of a single machine: SQLite in a data directory.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/sqlite/body_files.h"
#include "services/engine/store/sqlite/connection.h"
#include "services/engine/store/sqlite/read_pool.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// One connection writes and checkpoints, under a mutex that is contended only by rare writes of
// keys; reads use connections of their own. WAL with synchronous=FULL: what Commit has returned
// survives a loss of power. The caller holds the DataDirLock of the directory.
class SqliteStore : public Store {
 public:
  struct Options {
    // The database file; made when missing.
    std::filesystem::path database;
    // Folder of bodies larger than kInlineBodyBytes; made when missing.
    std::filesystem::path bodies_dir;
  };

  // Migrates the schema, then removes bodies that no live request names.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const Options& options);

  absl::StatusOr<StoredState> TakeLeadership() override;
  absl::Status Commit(int64_t term, std::span<const Write> writes,
                      std::span<const Blob> blobs) override;
  absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) override;
  void DiscardLargeBody(const std::string& body_id) override;
  absl::StatusOr<std::string> ReadBody(const std::string& body_id) override;
  absl::StatusOr<std::optional<RequestStatus>> FindRequest(const std::string& request_id) override;
  absl::StatusOr<std::optional<StoredResult>> ReadResult(const std::string& request_id) override;
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
  absl::StatusOr<std::vector<SessionRow>> SearchSessions(const std::string& tenant_id,
                                                         const SessionQuery& query) override;
  absl::StatusOr<std::vector<std::string>> ModelIdsOfSession(
      const std::string& session_id) override;
  absl::StatusOr<std::vector<std::string>> SamplerIdsOfSession(
      const std::string& session_id) override;
  absl::StatusOr<std::optional<SamplerRow>> FindSampler(
      const std::string& tenant_id, const std::string& sampling_session_id) override;
  absl::StatusOr<std::optional<CheckpointRow>> FindCheckpoint(const std::string& tenant_id,
                                                              const std::string& tinker_path,
                                                              int64_t now) override;
  absl::StatusOr<Page<CheckpointRow>> ListCheckpoints(const std::string& tenant_id,
                                                      const std::string& model_id, int64_t now,
                                                      bool with_external, int64_t limit,
                                                      int64_t offset) override;
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
  absl::Status AppendAudit(const AuditRow& row) override;
  absl::StatusOr<std::vector<AuditRow>> ListAudit(const std::string& tenant_id,
                                                  const std::string& resource, int64_t from,
                                                  int64_t until, int64_t limit) override;
  absl::StatusOr<std::string> Secret(const std::string& name) override;

 private:
  SqliteStore(const Options& options, BodyFiles bodies);

  absl::Status Prepare();
  absl::Status CommitLocked(int64_t term, std::span<const Write> writes,
                            std::span<const Blob> blobs, std::vector<std::string>& dropped_bodies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  BodyFiles bodies_;
  absl::Mutex write_mu_;
  Connection writer_ ABSL_GUARDED_BY(write_mu_);
  ReadPool readers_;
};

}  // namespace lathe::engine
