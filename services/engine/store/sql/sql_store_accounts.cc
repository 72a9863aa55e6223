// SQL reads of a store: storage and usage.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

constexpr char kUseOfSession[] =
    "SELECT count(*), CAST(coalesce(sum(size_bytes), 0) AS BIGINT) FROM checkpoints"
    " WHERE tenant_id = ?1 AND state = 1 AND (expires_at = 0 OR expires_at > ?3)"
    " AND model_id IN (SELECT model_id FROM models WHERE session_id = ?2)";
constexpr char kUseByProject[] =
    "SELECT coalesce(sessions.project_id, '') AS project, count(*),"
    " CAST(sum(checkpoints.size_bytes) AS BIGINT)"
    " FROM checkpoints LEFT JOIN models USING (model_id)"
    " LEFT JOIN sessions ON sessions.session_id = models.session_id"
    " WHERE checkpoints.tenant_id = ?1 AND checkpoints.state = 1"
    " AND (checkpoints.expires_at = 0 OR checkpoints.expires_at > ?2)"
    " GROUP BY project ORDER BY project";
// The order is that of the primary key.
constexpr char kUsageOfHours[] =
    ", coalesce((SELECT project_id FROM sessions AS s WHERE s.session_id = usage.session_id), ''),"
    " coalesce((SELECT user_metadata FROM sessions AS s WHERE s.session_id = usage.session_id), '')"
    " FROM usage WHERE tenant_id = ? AND hour >= ? AND hour < ?"
    " ORDER BY hour, session_id, base_model LIMIT ?";

StoredUse ReadUse(Query& query) {
  StoredUse use;
  use.num_checkpoints = query.Int();
  use.stored_bytes = query.Int();
  return use;
}

}  // namespace

absl::StatusOr<StoredUse> SqlStore::StoredUseOfSession(const std::string& tenant_id,
                                                       const std::string& session_id, int64_t now) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<StoredUse> {
    Query query = connection.Prepare(kUseOfSession);
    query.Bind(tenant_id, session_id, now).Next();
    return ReadUse(query);
  });
}

absl::StatusOr<std::vector<ProjectUse>> SqlStore::StoredUseByProject(const std::string& tenant_id,
                                                                     int64_t now) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<ProjectUse>> {
    Query query = connection.Prepare(kUseByProject);
    query.Bind(tenant_id, now);
    std::vector<ProjectUse> uses;
    while (query.Next()) {
      ProjectUse& use = uses.emplace_back();
      use.project_id = query.Text();
      use.use = ReadUse(query);
    }
    return uses;
  });
}

absl::StatusOr<std::vector<SessionUsage>> SqlStore::ListUsage(const std::string& tenant_id,
                                                              int64_t from, int64_t until,
                                                              int64_t limit) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<SessionUsage>> {
    Query query = connection.Prepare(absl::StrCat("SELECT ", kUsageColumns, kUsageOfHours));
    query.Bind(tenant_id, from, until, limit);
    std::vector<SessionUsage> usage;
    while (query.Next()) {
      SessionUsage& one = usage.emplace_back();
      ReadRow(query, one.row);
      one.project_id = query.Text();
      one.user_metadata = DecodeMetadata(query.Text());
    }
    return usage;
  });
}

}  // namespace lathe::engine
