// Turns the writes of a commit into SQL.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"
#include "services/engine/store/sql/sql_connection.h"

namespace lathe::engine {

// Bytes of the blobs of a commit, by id. They outlive the transaction.
using BlobIndex = std::map<std::string_view, std::string_view>;

// Applies writes inside the caller's transaction. No statement depends on what an earlier one
// changed, so a connection may send them together. Throws the exceptions of `connection`.
class WriteApplier {
 public:
  // `connection` and `blobs` must outlive this object.
  WriteApplier(SqlConnection& connection, const BlobIndex& blobs)
      : connection_(connection), blobs_(blobs) {}

  absl::Status Apply(const Write& write);

  // Bodies that should be deleted but are in no row. The caller removes their files once the
  // transaction is durable.
  const std::vector<std::string>& dropped_bodies() const { return dropped_bodies_; }

 private:
  absl::Status operator()(const PutSession& write);
  absl::Status operator()(const TouchSession& write);
  absl::Status operator()(const PutModel& write);
  absl::Status operator()(const InsertRequest& write);
  absl::Status operator()(const MarkDispatched& write);
  absl::Status operator()(const CompleteRequest& write);
  absl::Status operator()(const MarkDelivered& write);
  absl::Status operator()(const PutCheckpoint& write);
  absl::Status operator()(const PutSampler& write);
  absl::Status operator()(const DeleteSampler& write);
  absl::Status operator()(const PutSnapshot& write);
  absl::Status operator()(const DeleteSnapshot& write);
  absl::Status operator()(const PutVersion& write);
  absl::Status operator()(const DeleteVersion& write);
  absl::Status operator()(const PutBaseModel& write);
  absl::Status operator()(const PutGroup& write);
  absl::Status operator()(const DropBody& write);
  // The runtime deletes in pieces after the commit, with Store::PurgePiece.
  absl::Status operator()(const PurgeResults&) { return absl::OkStatus(); }
  absl::Status operator()(const AppendAudit& write);
  absl::Status operator()(const PutQuota& write);
  absl::Status operator()(const DropResult& write);
  absl::Status operator()(const SetSessionProject& write);
  absl::Status operator()(const AddUsage& write);
  absl::Status operator()(const AppendPoints& write);

  // Runs `sql` with the columns of `row`. Returns the number of changed rows.
  template <typename Row>
  int64_t Put(const std::string& sql, const Row& row);
  template <typename Row>
  absl::Status Replace(const std::string& sql, const Row& row);

  SqlConnection& connection_;
  const BlobIndex& blobs_;
  std::vector<std::string> dropped_bodies_;
};

// Returns "INSERT INTO table (columns) VALUES (?, …)" that replaces a row of the same `key`. It
// does not set the columns `fixed`, which never change in such a row. SQLite rewrites every index
// that has a column which is set, even to the same value.
std::string UpsertSql(const std::string& table, const std::string& columns, const std::string& key,
                      const std::string& fixed = "");

// Appends to the audit log. Throws the exceptions of `connection`.
void InsertAudit(SqlConnection& connection, const AuditRow& row);

}  // namespace lathe::engine
