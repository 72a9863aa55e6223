// The store of several machines: Postgres 15 or newer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/postgres/connection.h"
#include "services/engine/store/postgres/connection_pool.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {

// One connection commits, a few serve reads, a few write large bodies and what is rare. The
// database may go away at any time and for as long as it likes: what the engine cannot do without
// waits for it, everything else is Unavailable after a few seconds until it is back.
class PostgresStore : public SqlStore {
 public:
  struct Options {
    // postgres://user:password@host:port/database?parameters, as libpq takes it.
    std::string url;
    // Connections for reads, and for large bodies and keys; each costs the server a process.
    int max_read_connections = 4;
    int max_write_connections = 2;
    // How long Open waits for a server that cannot be reached.
    absl::Duration open_timeout = absl::Seconds(30);
  };

  // Migrates the schema. Unavailable when the server cannot be reached, FailedPrecondition when
  // its schema is newer than this binary.
  static absl::StatusOr<std::unique_ptr<PostgresStore>> Open(const Options& options);

  // Waits for the database, too.
  absl::StatusOr<StoredState> TakeLeadership() override;
  // Removes bodies that no request needs, too. Waits for the database, as long as it takes.
  absl::StatusOr<StoredState> Load(int64_t term) override;
  // Waits for as long as the database is away, locked or full. Fails when another engine leads, or
  // for an error of ours. A commit whose outcome was unknown is looked up, never repeated blindly.
  absl::Status Commit(int64_t term, std::span<const Write> writes,
                      std::span<const Blob> blobs) override;
  absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) override;
  void DiscardLargeBody(const std::string& body_id) override;
  // Unavailable when the database does not answer: the core asks again.
  absl::StatusOr<std::string> ReadBody(const std::string& body_id) override;
  // Of those that the server shows to this user: its own, and all for a member of pg_monitor.
  absl::StatusOr<std::optional<OpenTransaction>> OldestTransaction() override;
  void GiveUp() override { given_up_ = true; }

 private:
  explicit PostgresStore(const Options& options);

  absl::Status Read(const Work& work) override;
  absl::Status Change(const Work& work) override;
  absl::Status OnLease(const Work& work) override;

  absl::StatusOr<StoredState> TryLoad(PostgresConnection& connection, int64_t term);
  // One attempt at the commit `number` of this term. Throws PostgresError.
  absl::Status TryCommit(int64_t term, int64_t number, std::span<const Write> writes,
                         std::span<const Blob> blobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // What became of commit `number`, which the leader's row did not take.
  absl::Status FindOutcome(int64_t term, int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // In transactions of their own, so that none is long.
  void PurgeInBatches(int64_t term, const PurgeResults& purge)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  std::atomic<bool> given_up_ = false;
  const PostgresConnection::Options connection_options_;
  PostgresPool readers_;
  PostgresPool writers_;
  PostgresPool leases_;
  std::atomic<int64_t> term_ = 0;  // 0: not the leader yet
  absl::Mutex write_mu_;
  std::unique_ptr<PostgresConnection> committer_ ABSL_GUARDED_BY(write_mu_);
  int64_t last_number_ ABSL_GUARDED_BY(write_mu_) = 0;
};

}  // namespace lathe::engine
