#include "services/engine/store/sql/sql_store.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/row_codec.h"

namespace lathe::engine {
namespace {

// Sessions that ended within a day still answer repeated finish calls and late heartbeats.
constexpr char kRecentlyEnded[] = " OR heartbeat_at > ?";
constexpr int64_t kDay = int64_t{86400} * 1000000000;

template <typename Row, typename... Values>
std::vector<Row> Load(SqlConnection& connection, const std::string& sql, const Values&... values) {
  Query query = connection.Prepare(sql);
  query.Bind(values...);
  return ReadRows<Row>(query);
}

}  // namespace

StoredState LoadState(SqlConnection& connection, int64_t now, bool has_indexes) {
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
  state.requests = ReadNeededRequests(connection, now, has_indexes);
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

}  // namespace lathe::engine
