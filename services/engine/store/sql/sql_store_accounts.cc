// SQL reads of a store: search of sessions, storage and usage.
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

constexpr char kOlderSessions[] =
    " FROM sessions WHERE tenant_id = ? AND (created_at, session_id) < (?, ?)"
    " ORDER BY created_at DESC, session_id DESC LIMIT ?";
// Number of rows that a search reads at once; a tenant may have any number of sessions.
constexpr int64_t kSearchedAtOnce = 256;
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

absl::StatusOr<std::vector<SessionRow>> SqlStore::SearchSessions(const std::string& tenant_id,
                                                                 const SessionQuery& query) {
  const std::string text = absl::StrCat("SELECT ", kSessionColumns, kOlderSessions);
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<SessionRow>> {
    const bool from_start = query.before_created_at == 0;
    int64_t before = from_start ? std::numeric_limits<int64_t>::max() : query.before_created_at;
    std::string before_id = query.before_session_id;
    std::vector<SessionRow> found;
    bool has_more = query.limit > 0;
    while (has_more) {
      Query sql = connection.Prepare(text);
      sql.Bind(tenant_id, before, before_id, kSearchedAtOnce);
      std::vector<SessionRow> rows = ReadRows<SessionRow>(sql);
      has_more = std::ssize(rows) == kSearchedAtOnce;
      for (SessionRow& row : rows) {
        before = row.created_at;
        before_id = row.session_id;
        if (Matches(row, query)) found.push_back(std::move(row));
        if (std::ssize(found) == query.limit) return found;
      }
    }
    return found;
  });
}

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
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<ProjectUse>> {
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
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<SessionUsage>> {
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
