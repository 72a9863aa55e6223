#include "services/engine/store/sql/sql_store.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/row_codec.h"

namespace lathe::engine {
namespace {

// A session is live until everything it held is freed.
constexpr char kLiveSessions[] =
    "(SELECT session_id FROM sessions WHERE state < 2 UNION "
    "SELECT session_id FROM models WHERE state IN (0, 1))";

// Sessions that ended within a day still answer repeated finish calls and late heartbeats.
constexpr char kRecentlyEnded[] = " OR heartbeat_at > ?";
constexpr int64_t kDay = int64_t{86400} * 1000000000;

// Requests to load; ?1 is the time one day ago. The ended ones are:
//   - those whose result no client has fetched: a limit counts them (found by the index
//     results_by_done),
//   - those that answer duplicate requests (except training whose result was delivered, which no
//   client requests again),
//   - failed ones for a day: refused ones have no result. Those whose result a limit removed are
//   left out, as they may be many,
//   - those with facts that the row of their model does not hold,
//   - loads (kind 8), which show the operations that arrived before their outcome was known.
constexpr char kNeededRequests[] =
    "state < 3"
    " OR (has_result = 1 AND done_at > 0 AND delivered_at = 0 AND result_bytes > 0)"
    " OR owner_id IN (SELECT session_id FROM live)"
    " OR (owner_id IN (SELECT model_id FROM models JOIN live USING (session_id) UNION ALL"
    "   SELECT sampling_session_id FROM samplers JOIN live USING (session_id))"
    "  AND (kind = 8 OR (state = 4 AND done_at > ?1 AND result_bytes >= 0)"
    "   OR ((op_class <> 1 OR delivered_at = 0) AND EXISTS"
    "    (SELECT 1 FROM results WHERE results.request_id = requests.request_id))"
    "   OR (op_class = 1 AND EXISTS (SELECT 1 FROM models WHERE model_id = requests.owner_id"
    "    AND (seq_id > closed_seq OR seq_id > gradient_from_seq OR seq_id > log_from_seq)))))";

// Bodies of unfinished requests, and of done forward_backwards that rebuild a live model.
constexpr char kLiveBodies[] =
    "SELECT body_id FROM requests WHERE body_id <> '' AND (state < 3 OR (state = 3 AND kind = 4 "
    "AND EXISTS (SELECT 1 FROM models WHERE model_id = requests.owner_id "
    "AND requests.seq_id > models.log_from_seq AND models.state < 2)))";

constexpr char kOfLiveModel[] =
    " WHERE model_id IN (SELECT model_id FROM models JOIN live USING (session_id))";

template <typename Row, typename... Values>
std::vector<Row> Load(SqlConnection& connection, const std::string& sql, const Values&... values) {
  Query query = connection.Prepare(sql);
  query.Bind(values...);
  return ReadRows<Row>(query);
}

}  // namespace

StoredState LoadState(SqlConnection& connection, int64_t now) {
  const std::string of_live_session = absl::StrCat(" WHERE session_id IN ", kLiveSessions);
  StoredState state;
  state.sessions =
      Load<SessionRow>(connection,
                       absl::StrCat("SELECT ", kSessionColumns, " FROM sessions", of_live_session,
                                    kRecentlyEnded, " ORDER BY created_at, session_id"),
                       now - kDay);
  state.models =
      Load<ModelRow>(connection, absl::StrCat("SELECT ", kModelColumns, " FROM models",
                                              of_live_session, " ORDER BY created_at, model_id"));
  state.requests = Load<RequestRow>(
      connection,
      absl::StrCat("WITH live AS ", kLiveSessions, " SELECT ", kRequestColumns,
                   " FROM requests WHERE ", kNeededRequests, " ORDER BY accepted_at, rowid"),
      now - kDay);
  state.checkpoints = Load<CheckpointRow>(
      connection, absl::StrCat("SELECT ", kCheckpointColumns,
                               " FROM checkpoints WHERE state = 1 ORDER BY created_at, rowid"));
  state.samplers =
      Load<SamplerRow>(connection, absl::StrCat("SELECT ", kSamplerColumns, " FROM samplers",
                                                of_live_session, " ORDER BY created_at, rowid"));
  state.snapshots =
      Load<SnapshotRow>(connection, absl::StrCat("WITH live AS ", kLiveSessions, " SELECT ",
                                                 kSnapshotColumns, " FROM snapshots", kOfLiveModel,
                                                 " ORDER BY applied_seq, created_at"));
  state.versions = Load<VersionRow>(
      connection, absl::StrCat("WITH live AS ", kLiveSessions, " SELECT ", kVersionColumns,
                               " FROM versions", kOfLiveModel, " ORDER BY version_id"));
  state.base_models = Load<BaseModelRow>(
      connection, absl::StrCat("SELECT ", kBaseModelColumns, " FROM base_models ORDER BY name"));
  state.groups = Load<GroupRow>(
      connection, absl::StrCat("SELECT ", kGroupColumns, " FROM groups ORDER BY group_name"));
  state.quotas = Load<QuotaRow>(
      connection, absl::StrCat("SELECT ", kQuotaColumns, " FROM quotas ORDER BY tenant_id"));
  return state;
}

std::set<std::string> LiveBodyIds(SqlConnection& connection) {
  std::set<std::string> ids;
  Query query = connection.Prepare(kLiveBodies);
  while (query.Next()) ids.insert(query.Text());
  return ids;
}

void SweepPayloads(SqlConnection& connection) {
  const std::string sql =
      absl::StrCat("DELETE FROM payloads WHERE body_id NOT IN (", kLiveBodies, ")");
  connection.Prepare(sql).Run();
}

}  // namespace lathe::engine
