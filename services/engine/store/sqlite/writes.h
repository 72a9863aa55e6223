// One write of a commit as SQL.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"
#include "services/engine/store/sqlite/connection.h"

namespace lathe::engine {

// Bytes of the blobs that travel with a commit, by id; they outlive the transaction.
using BlobIndex = std::map<std::string_view, std::string_view>;

// Applies writes inside a transaction of the caller. Throws SQLite::Exception.
class WriteApplier {
 public:
  // Both must outlive this.
  WriteApplier(Connection& connection, const BlobIndex& blobs)
      : connection_(connection), blobs_(blobs) {}

  absl::Status Apply(const Write& write);

  // Bodies whose files are to be removed once the transaction is durable.
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
  absl::Status operator()(const PurgeResults& write);
  absl::Status operator()(const AppendAudit& write);
  absl::Status operator()(const PutQuota& write);
  absl::Status operator()(const SetSessionProject& write);
  absl::Status operator()(const AddUsage& write);

  // Runs `sql` with the columns of `row`; returns the number of changed rows.
  template <typename Row>
  int64_t Put(const std::string& sql, const Row& row);
  template <typename Row>
  absl::Status Replace(const std::string& sql, const Row& row);

  Connection& connection_;
  const BlobIndex& blobs_;
  std::vector<std::string> dropped_bodies_;
};

// "INSERT OR REPLACE INTO table (columns) VALUES (?, …)".
std::string ReplaceSql(const std::string& table, const std::string& columns);

// Adds to the audit log. Throws SQLite::Exception.
void InsertAudit(Connection& connection, const AuditRow& row);

}  // namespace lathe::engine
