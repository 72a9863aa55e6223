#include "services/engine/store/sqlite/writes.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/store/sqlite/row_codec.h"
#include "services/engine/store/store.h"

namespace lathe::engine {
namespace {

constexpr char kTouchSession[] = "UPDATE sessions SET heartbeat_at = ?2 WHERE session_id = ?1";
constexpr char kInsertPayload[] = "INSERT INTO payloads (body_id, bytes) VALUES (?, ?)";
constexpr char kForgetFinished[] =
    "DELETE FROM requests WHERE owner_id = ? AND op_class = ? AND seq_id = ? AND state >= 3";
constexpr char kMarkDispatched[] =
    "UPDATE requests SET state = 2, epoch = ?2 WHERE request_id = ?1 AND state < 3";
// The first result of a request stays: two reads of one result are byte-identical.
constexpr char kInsertResult[] = "INSERT OR IGNORE INTO results (request_id, bytes) VALUES (?, ?)";
constexpr char kEndRequest[] =
    "UPDATE requests SET state = ?2, done_at = ?3, completion_number = ?4, "
    "outcome = ?5 WHERE request_id = ?1";
constexpr char kMarkDelivered[] =
    "UPDATE requests SET delivered_at = ?2 WHERE request_id = ?1 AND delivered_at = 0";
constexpr char kDeleteSampler[] = "DELETE FROM samplers WHERE sampling_session_id = ?";
constexpr char kDropPayload[] = "DELETE FROM payloads WHERE body_id = ?";
constexpr char kPurgeResults[] =
    "DELETE FROM results WHERE request_id IN (SELECT request_id FROM requests WHERE done_at > 0 "
    "AND (done_at < ?2 OR (delivered_at > 0 AND delivered_at < ?1))) "
    "OR request_id NOT IN (SELECT request_id FROM requests)";
constexpr char kDeleteSnapshot[] = "DELETE FROM snapshots WHERE snapshot_id = ?";
constexpr char kDeleteVersion[] = "DELETE FROM versions WHERE version_id = ?";
// What rebuilds a model that lives stays.
constexpr char kPurgeRows[] =
    "DELETE FROM requests WHERE done_at > 0 AND done_at < ? "
    "AND NOT (op_class = 1 AND EXISTS (SELECT 1 FROM models WHERE model_id = owner_id "
    "AND seq_id > log_from_seq AND models.state < 2)) "
    "AND NOT (op_class = 2 AND EXISTS (SELECT 1 FROM sessions WHERE session_id = owner_id "
    "AND sessions.state < 2))";
constexpr char kPurgeUsage[] = "DELETE FROM usage WHERE hour < ?";
constexpr char kSetProject[] =
    "UPDATE sessions SET project_id = ?3 WHERE tenant_id = ?1 AND session_id = ?2";
constexpr char kOrAdd[] =
    " ON CONFLICT DO UPDATE SET forward_tokens = forward_tokens + excluded.forward_tokens,"
    " forward_backward_tokens = forward_backward_tokens + excluded.forward_backward_tokens,"
    " prefill_tokens = prefill_tokens + excluded.prefill_tokens,"
    " cached_prefill_tokens = cached_prefill_tokens + excluded.cached_prefill_tokens,"
    " sampled_tokens = sampled_tokens + excluded.sampled_tokens,"
    " num_checkpoints = num_checkpoints + excluded.num_checkpoints,"
    " stored_bytes = max(stored_bytes, excluded.stored_bytes)";

std::string InsertSql(const std::string& verb, const std::string& table,
                      const std::string& columns) {
  std::string marks = "?";
  for (int64_t i = std::count(columns.begin(), columns.end(), ','); i > 0; --i) marks += ", ?";
  return absl::StrCat(verb, " INTO ", table, " (", columns, ") VALUES (", marks, ")");
}

}  // namespace

std::string ReplaceSql(const std::string& table, const std::string& columns) {
  return InsertSql("INSERT OR REPLACE", table, columns);
}

void InsertAudit(Connection& connection, const AuditRow& row) {
  static const std::string sql = InsertSql("INSERT", "audit", kAuditColumns);
  Query query = connection.Prepare(sql);
  BindRow(query, row);
  query.Run();
}

absl::Status WriteApplier::Apply(const Write& write) {
  return std::visit([this](const auto& one) { return (*this)(one); }, write);
}

template <typename Row>
int64_t WriteApplier::Put(const std::string& sql, const Row& row) {
  Query query = connection_.Prepare(sql);
  BindRow(query, row);
  return query.Run();
}

template <typename Row>
absl::Status WriteApplier::Replace(const std::string& sql, const Row& row) {
  Put(sql, row);
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutSession& write) {
  static const std::string sql = ReplaceSql("sessions", kSessionColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const TouchSession& write) {
  connection_.Prepare(kTouchSession).Bind(write.session_id, write.heartbeat_at).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutModel& write) {
  static const std::string sql = ReplaceSql("models", kModelColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const InsertRequest& write) {
  static const std::string insert = InsertSql("INSERT", "requests", kRequestColumns);
  static const std::string try_insert = InsertSql("INSERT OR IGNORE", "requests", kRequestColumns);
  const RequestRow& row = write.row;
  if (!row.body_id.empty() && row.body_bytes <= kInlineBodyBytes) {
    const auto body = blobs_.find(row.body_id);
    if (body == blobs_.end()) {
      return absl::InternalError(
          absl::StrFormat("request %s commits without its body", row.request_id));
    }
    connection_.Prepare(kInsertPayload).Bind(row.body_id).BindBytes(body->second).Run();
  }
  if (Put(try_insert, row) > 0) return absl::OkStatus();
  connection_.Prepare(kForgetFinished).Bind(row.owner_id, row.op_class, row.seq_id).Run();
  Put(insert, row);  // throws when the key is that of a live request
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const MarkDispatched& write) {
  connection_.Prepare(kMarkDispatched).Bind(write.request_id, write.epoch).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const CompleteRequest& write) {
  const auto result = blobs_.find(write.result_id);
  if (result == blobs_.end()) {
    return absl::InternalError(
        absl::StrFormat("request %s completes without its result", write.request_id));
  }
  if (connection_.Prepare(kInsertResult).Bind(write.request_id).BindBytes(result->second).Run() >
      0) {
    connection_.Prepare(kEndRequest)
        .Bind(write.request_id, write.state, write.done_at, write.completion_number, write.outcome)
        .Run();
  }
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const MarkDelivered& write) {
  connection_.Prepare(kMarkDelivered).Bind(write.request_id, write.delivered_at).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutCheckpoint& write) {
  static const std::string sql = ReplaceSql("checkpoints", kCheckpointColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const PutSampler& write) {
  static const std::string sql = ReplaceSql("samplers", kSamplerColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteSampler& write) {
  connection_.Prepare(kDeleteSampler).Bind(write.sampling_session_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutSnapshot& write) {
  static const std::string sql = ReplaceSql("snapshots", kSnapshotColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteSnapshot& write) {
  connection_.Prepare(kDeleteSnapshot).Bind(write.snapshot_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutVersion& write) {
  static const std::string sql = ReplaceSql("versions", kVersionColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteVersion& write) {
  connection_.Prepare(kDeleteVersion).Bind(write.version_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutBaseModel& write) {
  static const std::string sql = ReplaceSql("base_models", kBaseModelColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const PutGroup& write) {
  static const std::string sql = ReplaceSql("groups", kGroupColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DropBody& write) {
  if (connection_.Prepare(kDropPayload).Bind(write.body_id).Run() == 0) {
    dropped_bodies_.push_back(write.body_id);
  }
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PurgeResults& write) {
  connection_.Prepare(kPurgeResults).Bind(write.delivered_before, write.done_before).Run();
  connection_.Prepare(kPurgeRows).Bind(write.rows_before).Run();
  connection_.Prepare(kPurgeUsage).Bind(write.usage_before).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const AppendAudit& write) {
  InsertAudit(connection_, write.row);
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutQuota& write) {
  static const std::string sql = ReplaceSql("quotas", kQuotaColumns);
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const SetSessionProject& write) {
  connection_.Prepare(kSetProject).Bind(write.tenant_id, write.session_id, write.project_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const AddUsage& write) {
  static const std::string sql = absl::StrCat(InsertSql("INSERT", "usage", kUsageColumns), kOrAdd);
  Put(sql, write.row);
  return absl::OkStatus();
}

}  // namespace lathe::engine
