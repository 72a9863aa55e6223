// The store that engines on several machines share: Postgres 15 or newer.
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
#include "services/engine/store/postgres/connection_watch.h"
#include "services/engine/store/postgres/group_commit.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {

// Store on a Postgres database. One connection commits, one purges, a few serve reads, a few serve
// listings, a few write large bodies and rare changes, and others serve the lease. The database may
// be away at any time and for any time. Leadership and commits wait for it. Every other call
// returns Unavailable after a few seconds until the database is back.
class PostgresStore : public SqlStore {
 public:
  struct Options {
    // Connection URL as libpq takes it: postgres://user:password@host:port/database?parameters.
    std::string url;
    // Upper bounds of the connections for reads, for listings, and for large bodies and keys. Each
    // connection costs the server one process.
    int max_read_connections = 4;
    int max_list_connections = 4;
    int max_write_connections = 2;
    // Time that Open waits for a server that cannot be reached.
    absl::Duration open_timeout = absl::Seconds(30);
    // Schema that the store uses. Tests stand for another release.
    Schema schema = OwnSchema();
  };

  // Opens the store. Makes the schema if the database is empty, else leaves it to the leader's
  // Migrate. Returns Unavailable when the server cannot be reached, and FailedPrecondition when the
  // schema is newer and this binary cannot use it.
  static absl::StatusOr<std::unique_ptr<PostgresStore>> Open(const Options& options);

  // Also waits while the database is away.
  absl::StatusOr<StoredState> TakeLeadership() override;
  // Tries again until the database is back and its locks are free.
  absl::Status Migrate(int64_t term) override;
  absl::Status MakeIndexes() override;
  // Also removes bodies that no request needs. Waits for the database without a time limit.
  absl::StatusOr<StoredState> Load(int64_t term) override;
  // Waits while the database is away, locked or full. Fails when another engine leads, or for an
  // error that a retry cannot fix. When the outcome of a commit is unknown, looks it up before any
  // retry.
  absl::Status Commit(int64_t term, std::span<const Write> writes,
                      std::span<const Blob> blobs) override;
  absl::Status PurgePiece(int64_t term, PurgePass& pass) override;
  absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) override;
  void DiscardLargeBody(const std::string& body_id) override;
  // Returns Unavailable when the database does not answer; the core asks again.
  absl::StatusOr<std::string> ReadBody(const std::string& body_id) override;
  // Sees the transactions that the server shows to this user: its own, and all of them for a member
  // of pg_monitor.
  absl::StatusOr<std::optional<OpenTransaction>> OldestTransaction() override;
  absl::StatusOr<std::vector<std::string>> NamedDirs() override;
  void GiveUp() override { watch_.GiveUp(); }

 private:
  explicit PostgresStore(const Options& options);

  absl::Status Read(const Work& work) override;
  // Uses connections of its own. A statement that takes too long is refused alone.
  absl::Status List(const Work& work) override;
  absl::Status Change(const Work& work) override;
  absl::Status ChangeSeries(const Work& work) override;
  absl::Status OnLease(const Work& work) override;

  absl::StatusOr<StoredState> TryLoad(PostgresConnection& connection, int64_t term);
  // One attempt at the commit `number` of this term. Throws exceptions of libpqxx.
  absl::Status TryCommit(int64_t term, int64_t number, std::span<const Write> writes,
                         std::span<const Blob> blobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Finds out whether commit `number` is done already, after its update of the leader's row changed
  // nothing.
  absl::Status FindOutcome(int64_t term, int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  const Schema schema_;
  ConnectionWatch watch_;
  const PostgresConnection::Options connection_options_;
  PostgresPool readers_;
  PostgresPool listers_;
  PostgresPool writers_;
  PostgresPool purgers_;
  PostgresPool folders_;
  PostgresPool leases_;
  std::atomic<int64_t> term_ = 0;  // 0: this process is not the leader yet
  absl::Mutex write_mu_;
  std::unique_ptr<GroupCommit> committer_ ABSL_GUARDED_BY(write_mu_);
  int64_t last_number_ ABSL_GUARDED_BY(write_mu_) = 0;
};

// Returns FailedPrecondition if a pooler assigns a session to each transaction or statement: then
// other clients would share the time-outs, prepared statements and locks. Without such a pooler,
// two connections that are open at once always have two sessions. Throws the exceptions of libpqxx.
absl::Status CheckSessions(PostgresConnection& connection,
                           const PostgresConnection::Options& options);

}  // namespace lathe::engine
