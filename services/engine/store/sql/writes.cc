#include "services/engine/store/sql/writes.h"

#include <algorithm>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/store.h"

namespace lathe::engine {
namespace {

constexpr char kTouchSession[] = "UPDATE sessions SET heartbeat_at = ?2 WHERE session_id = ?1";
constexpr char kInsertPayload[] = "INSERT INTO payloads (body_id, bytes) VALUES (?, ?)";
constexpr char kMarkDispatched[] =
    "UPDATE requests SET state = 2, epoch = ?2, outcome = ?3 WHERE request_id = ?1 AND state < 3";
// The first result of a request stays, so that two reads of a result are byte-identical.
constexpr char kEndRequest[] =
    "UPDATE requests SET state = ?2, done_at = ?3, completion_number = ?4, outcome = ?5,"
    " has_result = 1, result_bytes = ?6"
    " WHERE request_id = ?1 AND NOT EXISTS (SELECT 1 FROM results WHERE results.request_id = ?1)";
constexpr char kInsertResult[] =
    "INSERT INTO results (request_id, bytes) VALUES (?, ?) ON CONFLICT DO NOTHING";
constexpr char kMarkDelivered[] =
    "UPDATE requests SET delivered_at = ?2 WHERE request_id = ?1 AND delivered_at = 0";
constexpr char kDeleteResult[] = "DELETE FROM results WHERE request_id = ?";
constexpr char kMarkDropped[] =
    "UPDATE requests SET has_result = 0, result_bytes = -1 WHERE request_id = ?";
constexpr char kDeleteSampler[] = "DELETE FROM samplers WHERE sampling_session_id = ?";
constexpr char kDropPayload[] = "DELETE FROM payloads WHERE body_id = ?";
constexpr char kDeleteSnapshot[] = "DELETE FROM snapshots WHERE snapshot_id = ?";
constexpr char kDeleteVersion[] = "DELETE FROM versions WHERE version_id = ?";
constexpr char kSetProject[] =
    "UPDATE sessions SET project_id = ?3 WHERE tenant_id = ?1 AND session_id = ?2";
constexpr char kAppendPoints[] = "INSERT INTO series_journal (journal_id, bytes) VALUES (?, ?)";
constexpr char kOrAdd[] =
    " ON CONFLICT (tenant_id, hour, session_id, base_model) DO UPDATE SET"
    " forward_tokens = usage.forward_tokens + excluded.forward_tokens,"
    " forward_backward_tokens = usage.forward_backward_tokens + excluded.forward_backward_tokens,"
    " prefill_tokens = usage.prefill_tokens + excluded.prefill_tokens,"
    " cached_prefill_tokens = usage.cached_prefill_tokens + excluded.cached_prefill_tokens,"
    " sampled_tokens = usage.sampled_tokens + excluded.sampled_tokens,"
    " num_checkpoints = usage.num_checkpoints + excluded.num_checkpoints,"
    " stored_bytes = CASE WHEN usage.stored_bytes > excluded.stored_bytes"
    "  THEN usage.stored_bytes ELSE excluded.stored_bytes END";

std::string InsertSql(const std::string& table, const std::string& columns) {
  std::string marks = "?";
  for (int64_t i = std::count(columns.begin(), columns.end(), ','); i > 0; --i) marks += ", ?";
  return absl::StrCat("INSERT INTO ", table, " (", columns, ") VALUES (", marks, ")");
}

// Returns "a = excluded.a, b = excluded.b…".
std::string SetExcluded(const std::string& columns, const std::string& but = "") {
  const std::set<absl::string_view> left_out = absl::StrSplit(but, ", ");
  std::vector<std::string> sets;
  for (const absl::string_view column : absl::StrSplit(columns, ", ")) {
    if (left_out.contains(column)) continue;
    sets.push_back(absl::StrCat(column, " = excluded.", column));
  }
  return absl::StrJoin(sets, ", ");
}

// Replaces a finished row of the same key. For a live row, tenant_id becomes NULL, which the column
// refuses. So the database itself reports the error, and no caller checks the number of changed
// rows.
std::string InsertRequestSql() {
  const std::string sets = absl::StrReplaceAll(
      SetExcluded(kRequestColumns),
      {{"tenant_id = excluded.tenant_id",
        "tenant_id = CASE WHEN requests.state >= 3 THEN excluded.tenant_id END"}});
  return absl::StrCat(InsertSql("requests", kRequestColumns),
                      " ON CONFLICT (owner_id, op_class, seq_id) DO UPDATE SET ", sets,
                      ", completion_number = 0, has_result = 0");
}

}  // namespace

std::string UpsertSql(const std::string& table, const std::string& columns, const std::string& key,
                      const std::string& fixed) {
  return absl::StrCat(InsertSql(table, columns), " ON CONFLICT (", key, ") DO UPDATE SET ",
                      SetExcluded(columns, fixed.empty() ? key : absl::StrCat(key, ", ", fixed)));
}

void InsertAudit(SqlConnection& connection, const AuditRow& row) {
  static const std::string sql = InsertSql("audit", kAuditColumns);
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
  static const std::string sql =
      UpsertSql("sessions", kSessionColumns, "session_id", "tenant_id, created_at");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const TouchSession& write) {
  connection_.Prepare(kTouchSession).Bind(write.session_id, write.heartbeat_at).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutModel& write) {
  static const std::string sql =
      UpsertSql("models", kModelColumns, "model_id", "session_id, tenant_id, created_at");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const InsertRequest& write) {
  static const std::string insert = InsertRequestSql();
  const RequestRow& row = write.row;
  if (!row.body_id.empty() && row.body_bytes <= kInlineBodyBytes) {
    const auto body = blobs_.find(row.body_id);
    if (body == blobs_.end()) {
      return absl::InternalError(
          absl::StrFormat("request %s commits without its body", row.request_id));
    }
    connection_.Prepare(kInsertPayload).Bind(row.body_id).BindBytes(body->second).Run();
  }
  Put(insert, row);
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const MarkDispatched& write) {
  connection_.Prepare(kMarkDispatched).Bind(write.request_id, write.epoch, write.outcome).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const CompleteRequest& write) {
  const auto result = blobs_.find(write.result_id);
  if (result == blobs_.end()) {
    return absl::InternalError(
        absl::StrFormat("request %s completes without its result", write.request_id));
  }
  connection_.Prepare(kEndRequest)
      .Bind(write.request_id, write.state, write.done_at, write.completion_number, write.outcome,
            write.result_bytes)
      .Run();
  connection_.Prepare(kInsertResult).Bind(write.request_id).BindBytes(result->second).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const MarkDelivered& write) {
  connection_.Prepare(kMarkDelivered).Bind(write.request_id, write.delivered_at).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const DropResult& write) {
  connection_.Prepare(kDeleteResult).Bind(write.request_id).Run();
  connection_.Prepare(kMarkDropped).Bind(write.request_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutCheckpoint& write) {
  static const std::string sql = UpsertSql("checkpoints", kCheckpointColumns, "tinker_path");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const PutSampler& write) {
  static const std::string sql = UpsertSql("samplers", kSamplerColumns, "sampling_session_id");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteSampler& write) {
  connection_.Prepare(kDeleteSampler).Bind(write.sampling_session_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutSnapshot& write) {
  static const std::string sql = UpsertSql("snapshots", kSnapshotColumns, "snapshot_id");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteSnapshot& write) {
  connection_.Prepare(kDeleteSnapshot).Bind(write.snapshot_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutVersion& write) {
  static const std::string sql = UpsertSql("versions", kVersionColumns, "version_id");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DeleteVersion& write) {
  connection_.Prepare(kDeleteVersion).Bind(write.version_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutBaseModel& write) {
  static const std::string sql = UpsertSql("base_models", kBaseModelColumns, "name");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const PutGroup& write) {
  static const std::string sql = UpsertSql("groups", kGroupColumns, "group_name");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const DropBody& write) {
  if (connection_.Prepare(kDropPayload).Bind(write.body_id).Run() == 0) {
    dropped_bodies_.push_back(write.body_id);
  }
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const AppendAudit& write) {
  InsertAudit(connection_, write.row);
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const PutQuota& write) {
  static const std::string sql = UpsertSql("quotas", kQuotaColumns, "tenant_id");
  return Replace(sql, write.row);
}

absl::Status WriteApplier::operator()(const SetSessionProject& write) {
  connection_.Prepare(kSetProject).Bind(write.tenant_id, write.session_id, write.project_id).Run();
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const AddUsage& write) {
  static const std::string sql = absl::StrCat(InsertSql("usage", kUsageColumns), kOrAdd);
  Put(sql, write.row);
  return absl::OkStatus();
}

absl::Status WriteApplier::operator()(const AppendPoints& write) {
  connection_.Prepare(kAppendPoints).Bind(write.journal_id).BindBytes(write.bytes).Run();
  return absl::OkStatus();
}

}  // namespace lathe::engine
