// SQL reads of a store: listings and look-ups.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/sql/session_search.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

constexpr char kReadPayload[] = "SELECT bytes FROM payloads WHERE body_id = ?";
constexpr char kHasSecret[] = "SELECT 1 FROM secrets WHERE name = ?";
constexpr char kFindRequest[] =
    "SELECT kind, state,"
    " state >= 3 AND NOT EXISTS (SELECT 1 FROM results WHERE results.request_id = ?2)"
    " FROM requests WHERE tenant_id = ?1 AND request_id = ?2";
constexpr char kReadResult[] =
    "SELECT bytes FROM requests JOIN results ON results.request_id = requests.request_id"
    " WHERE tenant_id = ? AND requests.request_id = ?";
constexpr char kReadAnyResult[] = "SELECT bytes FROM results WHERE request_id = ?";
constexpr char kUndeliveredSamples[] =
    "SELECT completion_number, requests.request_id, tenant_id, owner_id, seq_id, state, done_at,"
    " length(bytes)"
    " FROM requests JOIN results ON results.request_id = requests.request_id"
    " WHERE completion_number > 0 AND delivered_at = 0 ORDER BY completion_number";
constexpr char kModelIds[] =
    "SELECT model_id FROM models WHERE tenant_id = ? AND session_id = ? ORDER BY model_seq_id";
constexpr char kSamplerIds[] =
    "SELECT sampling_session_id FROM samplers WHERE tenant_id = ? AND session_id = ?"
    " ORDER BY sampling_session_seq_id";
constexpr char kStoredBytes[] =
    "SELECT CAST(coalesce(sum(size_bytes), 0) AS BIGINT) FROM checkpoints WHERE tenant_id = ? AND "
    "state = 1";
constexpr char kListTenants[] =
    "SELECT tenant_id, name, created_at FROM tenants ORDER BY created_at, tenant_id";
constexpr char kCounted[] = " LIMIT ? OFFSET ?) AS counted";
constexpr char kNewestFirst[] = " ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?";

template <typename Row>
std::optional<Row> ReadOne(Query& query) {
  if (!query.Next()) return std::nullopt;
  Row row;
  ReadRow(query, row);
  return row;
}

std::vector<std::string> ReadTexts(Query& query) {
  std::vector<std::string> texts;
  while (query.Next()) texts.push_back(query.Text());
  return texts;
}

// Reads a page of `table` where `condition` holds with `values` bound to it.
template <typename Row, typename... Values>
Page<Row> ReadPage(SqlConnection& connection, const char* columns, const char* table,
                   const std::string& condition, int64_t limit, int64_t offset,
                   const Values&... values) {
  Page<Row> page;
  Query query = connection.Prepare(
      absl::StrCat("SELECT ", columns, " FROM ", table, " WHERE ", condition, kNewestFirst));
  query.Bind(values..., limit, offset);
  page.rows = ReadRows<Row>(query);
  const auto count = [&](int64_t most, int64_t skipped) {
    Query counted = connection.Prepare(absl::StrCat("SELECT count(*) FROM (SELECT 1 FROM ", table,
                                                    " WHERE ", condition, kCounted));
    counted.Bind(values..., most, skipped).Next();
    return counted.Int();
  };
  const int64_t num_behind = page.rows.empty() ? 0 : count(kMaxCountedRows, offset);
  page.total_count = num_behind > 0 ? offset + num_behind : count(offset, 0);
  return page;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> SqlStore::ReadPayload(const std::string& body_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<std::string>> {
    Query query = connection.Prepare(kReadPayload);
    if (!query.Bind(body_id).Next()) return std::nullopt;
    return query.Bytes();
  });
}

absl::StatusOr<bool> SqlStore::HasSecret(const std::string& name) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<bool> {
    return connection.Prepare(kHasSecret).Bind(name).Next();
  });
}

absl::StatusOr<std::vector<std::string>> SqlStore::NamedDirs() {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<std::string>> {
    return ReadNamedDirs(connection);
  });
}

std::vector<std::string> SqlStore::ReadNamedDirs(SqlConnection& connection) {
  Query query = connection.Prepare(
      absl::StrCat("WITH live AS ", kLiveSessions, " SELECT dir FROM checkpoints WHERE state = 1",
                   " UNION SELECT snapshot_id FROM snapshots", kOfLiveModel,
                   " UNION SELECT dir FROM versions", kOfLiveModel));
  std::vector<std::string> dirs = ReadTexts(query);
  std::sort(dirs.begin(), dirs.end());
  return dirs;
}

absl::StatusOr<std::optional<RequestStatus>> SqlStore::FindRequest(const std::string& tenant_id,
                                                                   const std::string& request_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<RequestStatus>> {
    Query query = connection.Prepare(kFindRequest);
    if (!query.Bind(tenant_id, request_id).Next()) return std::nullopt;
    RequestStatus status;
    status.kind = static_cast<OperationKind>(query.Int());
    status.state = static_cast<RequestState>(query.Int());
    status.result_expired = query.Bool();
    return status;
  });
}

absl::StatusOr<std::optional<RequestRow>> SqlStore::FindRequestByKey(const std::string& tenant_id,
                                                                     const std::string& owner_id,
                                                                     OpClass op_class,
                                                                     int64_t seq_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<RequestRow>> {
    Query query = connection.Prepare(absl::StrCat(
        "SELECT ", kRequestColumns,
        " FROM requests WHERE tenant_id = ? AND owner_id = ? AND op_class = ? AND seq_id = ?"));
    return ReadOne<RequestRow>(query.Bind(tenant_id, owner_id, op_class, seq_id));
  });
}

absl::StatusOr<std::optional<StoredResult>> SqlStore::ReadResult(const std::string& tenant_id,
                                                                 const std::string& request_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<StoredResult>> {
    Query query = connection.Prepare(kReadResult);
    if (!query.Bind(tenant_id, request_id).Next()) return std::nullopt;
    return StoredResult{query.Bytes()};
  });
}

absl::StatusOr<std::optional<StoredResult>> SqlStore::ReadAnyResult(const std::string& request_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<StoredResult>> {
    Query query = connection.Prepare(kReadAnyResult);
    if (!query.Bind(request_id).Next()) return std::nullopt;
    return StoredResult{query.Bytes()};
  });
}

absl::StatusOr<std::vector<CompletionRow>> SqlStore::ListUndeliveredSamples() {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<CompletionRow>> {
    Query query = connection.Prepare(kUndeliveredSamples);
    return ReadRows<CompletionRow>(query);
  });
}

absl::StatusOr<std::optional<SessionRow>> SqlStore::FindSession(const std::string& tenant_id,
                                                                const std::string& session_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<SessionRow>> {
    Query query = connection.Prepare(absl::StrCat(
        "SELECT ", kSessionColumns, " FROM sessions WHERE tenant_id = ? AND session_id = ?"));
    return ReadOne<SessionRow>(query.Bind(tenant_id, session_id));
  });
}

absl::StatusOr<Page<SessionRow>> SqlStore::ListSessions(const std::string& tenant_id, int64_t limit,
                                                        int64_t offset) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<Page<SessionRow>> {
    return ReadPage<SessionRow>(connection, kSessionColumns, "sessions", "tenant_id = ?", limit,
                                offset, tenant_id);
  });
}

absl::StatusOr<std::optional<ModelRow>> SqlStore::FindModel(const std::string& tenant_id,
                                                            const std::string& model_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<ModelRow>> {
    Query query = connection.Prepare(absl::StrCat(
        "SELECT ", kModelColumns, " FROM models WHERE tenant_id = ? AND model_id = ?"));
    return ReadOne<ModelRow>(query.Bind(tenant_id, model_id));
  });
}

absl::StatusOr<Page<ModelRow>> SqlStore::ListModels(const std::string& tenant_id, int64_t limit,
                                                    int64_t offset) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<Page<ModelRow>> {
    return ReadPage<ModelRow>(connection, kModelColumns, "models", "tenant_id = ?", limit, offset,
                              tenant_id);
  });
}

absl::StatusOr<Page<ModelRow>> SqlStore::ListModelsOfProject(const std::string& tenant_id,
                                                             const std::string& project_id,
                                                             int64_t limit, int64_t offset) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<Page<ModelRow>> {
    return ReadPage<ModelRow>(
        connection, kModelColumns, "models",
        "tenant_id = ?1 AND session_id IN"
        " (SELECT session_id FROM sessions WHERE tenant_id = ?1 AND project_id = ?2"
        "  AND project_id <> '')",
        limit, offset, tenant_id, project_id);
  });
}

absl::StatusOr<SessionPage> SqlStore::SearchSessions(const std::string& tenant_id,
                                                     const SessionQuery& query) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<SessionPage> {
    return FindSessions(connection, tenant_id, query);
  });
}

absl::StatusOr<std::vector<std::string>> SqlStore::ModelIdsOfSession(
    const std::string& tenant_id, const std::string& session_id) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<std::string>> {
    Query query = connection.Prepare(kModelIds);
    return ReadTexts(query.Bind(tenant_id, session_id));
  });
}

absl::StatusOr<std::vector<std::string>> SqlStore::SamplerIdsOfSession(
    const std::string& tenant_id, const std::string& session_id) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<std::string>> {
    Query query = connection.Prepare(kSamplerIds);
    return ReadTexts(query.Bind(tenant_id, session_id));
  });
}

absl::StatusOr<std::optional<SamplerRow>> SqlStore::FindSampler(
    const std::string& tenant_id, const std::string& sampling_session_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<SamplerRow>> {
    Query query = connection.Prepare(
        absl::StrCat("SELECT ", kSamplerColumns,
                     " FROM samplers WHERE tenant_id = ? AND sampling_session_id = ?"));
    return ReadOne<SamplerRow>(query.Bind(tenant_id, sampling_session_id));
  });
}

absl::StatusOr<std::optional<CheckpointRow>> SqlStore::FindCheckpoint(
    const std::string& tenant_id, const std::string& tinker_path, int64_t now) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<CheckpointRow>> {
    Query query =
        connection.Prepare(absl::StrCat("SELECT ", kCheckpointColumns,
                                        " FROM checkpoints WHERE (tenant_id = ? OR is_public <> 0) "
                                        "AND tinker_path = ? AND state = 1"
                                        " AND (expires_at = 0 OR expires_at > ?)"));
    return ReadOne<CheckpointRow>(query.Bind(tenant_id, tinker_path, now));
  });
}

absl::StatusOr<Page<CheckpointRow>> SqlStore::ListCheckpoints(const std::string& tenant_id,
                                                              const std::string& model_id,
                                                              int64_t now, bool with_external,
                                                              int64_t limit, int64_t offset) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<Page<CheckpointRow>> {
    constexpr char kLive[] =
        "tenant_id = ? AND state = 1 AND (expires_at = 0 OR expires_at > ?) AND (? <> 0 OR kind <> "
        "3)";
    if (model_id.empty()) {
      return ReadPage<CheckpointRow>(connection, kCheckpointColumns, "checkpoints", kLive, limit,
                                     offset, tenant_id, now, with_external);
    }
    return ReadPage<CheckpointRow>(connection, kCheckpointColumns, "checkpoints",
                                   absl::StrCat(kLive, " AND model_id = ?"), limit, offset,
                                   tenant_id, now, with_external, model_id);
  });
}

absl::StatusOr<std::vector<CheckpointRow>> SqlStore::NewestCheckpoints(
    const std::string& tenant_id, std::span<const std::string> model_ids, int64_t now) {
  // The statement has so many places for ids; those that are left over stay empty.
  constexpr size_t kIdsPerQuery = 100;
  std::string places = "?";
  for (size_t i = 1; i < kIdsPerQuery; ++i) places += ", ?";
  const std::string sql = absl::StrCat(
      "SELECT ", kCheckpointColumns,
      " FROM checkpoints WHERE tinker_path IN (SELECT ("
      "SELECT newest.tinker_path FROM checkpoints AS newest WHERE newest.tenant_id = ?"
      " AND newest.model_id = models.model_id AND newest.kind = kinds.kind AND newest.state = 1"
      " AND (newest.expires_at = 0 OR newest.expires_at > ?)"
      " ORDER BY newest.created_at DESC, newest.rowid DESC LIMIT 1)"
      " FROM models CROSS JOIN (SELECT 1 AS kind UNION ALL SELECT 2) AS kinds"
      " WHERE models.model_id IN (",
      places, "))");
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<CheckpointRow>> {
    std::vector<CheckpointRow> rows;
    for (size_t first = 0; first < model_ids.size(); first += kIdsPerQuery) {
      Query query = connection.Prepare(sql);
      query.Bind(tenant_id, now);
      for (size_t i = first; i < first + kIdsPerQuery; ++i) {
        query.Bind(i < model_ids.size() ? std::string_view(model_ids[i]) : std::string_view());
      }
      while (query.Next()) ReadRow(query, rows.emplace_back());
    }
    return rows;
  });
}

absl::StatusOr<int64_t> SqlStore::StoredBytes(const std::string& tenant_id) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<int64_t> {
    Query query = connection.Prepare(kStoredBytes);
    query.Bind(tenant_id).Next();
    return query.Int();
  });
}

absl::StatusOr<std::vector<TenantRow>> SqlStore::ListTenants() {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<TenantRow>> {
    Query query = connection.Prepare(kListTenants);
    std::vector<TenantRow> rows;
    while (query.Next()) {
      TenantRow& row = rows.emplace_back();
      row.tenant_id = query.Text();
      row.name = query.Text();
      row.created_at = query.Int();
    }
    return rows;
  });
}

absl::StatusOr<std::vector<ApiKeyRow>> SqlStore::ListKeys() {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<ApiKeyRow>> {
    Query query = connection.Prepare(
        absl::StrCat("SELECT ", kKeyColumns, " FROM api_keys ORDER BY created_at, key_id"));
    return ReadRows<ApiKeyRow>(query);
  });
}

absl::StatusOr<std::vector<AuditRow>> SqlStore::ListAudit(const std::string& tenant_id,
                                                          const std::string& resource, int64_t from,
                                                          int64_t until, int64_t limit) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<AuditRow>> {
    Query query = connection.Prepare(
        absl::StrCat("SELECT ", kAuditColumns,
                     " FROM (SELECT * FROM audit WHERE tenant_id = ?1 AND at >= ?2 AND at < ?3"
                     " AND (?4 = '' OR resource = ?4) ORDER BY at DESC, id DESC LIMIT ?5) AS newest"
                     " ORDER BY at, id"));
    return ReadRows<AuditRow>(query.Bind(tenant_id, from, until, resource, limit));
  });
}

absl::StatusOr<AuditPage> SqlStore::ExportAudit(int64_t before, int64_t after_id, int64_t limit) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<AuditPage> {
    Query query = connection.Prepare(absl::StrCat(
        "SELECT id, ", kAuditColumns, " FROM audit WHERE id > ?1 ORDER BY id LIMIT ?2"));
    query.Bind(after_id, limit);
    AuditPage page;
    while (query.Next()) {
      NumberedAudit entry{.id = query.Int()};
      ReadRow(query, entry.row);
      page.last_id = entry.id;
      if (entry.row.at < before) page.entries.push_back(std::move(entry));
    }
    return page;
  });
}

}  // namespace lathe::engine
