// The store of a single machine: SQLite files in a data directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/sql/purge.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sqlite/body_files.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Store on a SQLite database. One connection writes and checkpoints under a mutex, which only rare
// writes of keys and the short pieces of a purge contend for. A purge checkpoints what it writes
// from a connection of its own, beside the commits. Reads use connections of their own. The
// database runs in WAL mode with synchronous=FULL: a commit that has returned survives a loss of
// power. The caller holds the DataDirLock of the directory.
class SqliteStore : public SqlStore {
 public:
  struct Options {
    // Database file; created when missing.
    std::filesystem::path database;
    // Directory of bodies larger than kInlineBodyBytes; created when missing.
    std::filesystem::path bodies_dir;
    // Schema that the store uses. Tests stand for another release.
    Schema schema = OwnSchema();
  };

  // Opens the store: migrates the schema, then removes bodies that no live request names. Returns
  // FailedPrecondition when the schema is newer and this binary cannot use it.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const Options& options);

  absl::StatusOr<StoredState> Load(int64_t term) override;
  absl::Status Commit(int64_t term, std::span<const Write> writes,
                      std::span<const Blob> blobs) override;
  absl::Status PurgePiece(int64_t term, PurgePass& pass) override;
  absl::Status PutLargeBody(const std::string& body_id, const std::string& bytes) override;
  void DiscardLargeBody(const std::string& body_id) override;
  absl::StatusOr<std::string> ReadBody(const std::string& body_id) override;

 private:
  SqliteStore(const Options& options, BodyFiles bodies);

  absl::Status Read(const Work& work) override;
  absl::Status Change(const Work& work) override;

  absl::Status Prepare(const Schema& schema);
  absl::Status CheckTermLocked(int64_t term) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status CommitLocked(int64_t term, std::span<const Write> writes,
                            std::span<const Blob> blobs, std::vector<std::string>& dropped_bodies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status PurgeLocked(int64_t term, PurgePass& pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Copies the log into the database: first while commits go on, then the few pages that they have
  // written meanwhile. The next commit begins the log anew.
  absl::Status CopyLog();

  const std::string database_;
  BodyFiles bodies_;
  absl::Mutex write_mu_;
  Connection writer_ ABSL_GUARDED_BY(write_mu_);
  int64_t piece_rows_ ABSL_GUARDED_BY(write_mu_) = kMinPurgedRows;
  // Pages written to the log since a purge last copied it.
  int64_t num_pages_logged_ ABSL_GUARDED_BY(write_mu_) = 0;
  absl::Mutex copy_mu_;
  // Copies the log beside commits; null: no purge has needed it yet.
  std::unique_ptr<Connection> copier_ ABSL_GUARDED_BY(copy_mu_);
  ReadPool readers_;
};

}  // namespace lathe::engine
