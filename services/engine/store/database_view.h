// A view of a database for backups, its copy, and a database that is made of the copy again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Secret that an engine makes when it first uses an object store.
inline constexpr char kObjectStoreId[] = "object_store_id";

// The database as of one moment, whatever its engine commits meanwhile. Blocks no commit. A SQLite
// database keeps its log, and a Postgres database its removed rows, until the view ends.
class DatabaseView {
 public:
  virtual ~DatabaseView() = default;

  // "sqlite" or "postgres".
  virtual std::string kind() const = 0;
  virtual int64_t schema_version() const = 0;
  // Returns what an engine that starts to lead would read.
  virtual absl::StatusOr<StoredState> Load() = 0;
  // Returns the ids of needed bodies that are files of their own in DATA_DIR/bodies, sorted.
  virtual absl::StatusOr<std::vector<std::string>> BodyFiles() = 0;
  // Returns true if the checkpoints were kept in an object store at any time.
  virtual absl::StatusOr<bool> HasObjectStore() = 0;
  // Writes the whole database into files in `dir`, which exists and is empty, and returns their
  // names. The files are durable. Returns ResourceExhausted, naming a path, if the disk is full.
  virtual absl::StatusOr<std::vector<std::string>> CopyTo(const std::filesystem::path& dir) = 0;
};

// Opens a view of the database of `setting` (see OpenStore). Returns FailedPrecondition if there is
// no such database, or if its schema is not the one of this engine or a later one that it can use.
absl::StatusOr<std::unique_ptr<DatabaseView>> ViewDatabase(const std::string& setting,
                                                           const std::filesystem::path& data_dir);

// A copy that CopyTo has written.
struct DatabaseCopy {
  std::string kind;
  int64_t schema_version = 0;
  std::filesystem::path dir;
};

// An empty database that waits for its copy. Other programs of Lathe leave it empty meanwhile.
class DatabaseRestore {
 public:
  virtual ~DatabaseRestore() = default;

  // Tells a server that the restore goes on. Returns an error if the server has given it up.
  virtual absl::Status KeepAlive() = 0;
  // Fills the database, all or nothing, durably. If nobody can say whether it is filled, the error
  // has the word kOutcomeUnknown (ErrorCode).
  virtual absl::Status Fill() = 0;
};

inline constexpr char kOutcomeUnknown[] = "outcome_unknown";

// Returns FailedPrecondition if the database of `setting` is not empty, is of another kind than
// `copy`, or if this engine does not know the copy's schema. Finds out whether it can be filled.
absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginRestore(
    const DatabaseCopy& copy, const std::string& setting, const std::filesystem::path& data_dir);

// The same for one kind of database.
absl::StatusOr<std::unique_ptr<DatabaseView>> ViewSqlite(const std::filesystem::path& database);
absl::StatusOr<std::unique_ptr<DatabaseView>> ViewPostgres(const std::string& url);
absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginSqliteRestore(
    const DatabaseCopy& copy, const std::filesystem::path& database);
absl::StatusOr<std::unique_ptr<DatabaseRestore>> BeginPostgresRestore(const DatabaseCopy& copy,
                                                                      const std::string& url);

}  // namespace lathe::engine
