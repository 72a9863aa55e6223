// Writes outside the commits: tenants, keys, audit, secrets.
#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/random/random_id.h"
#include "services/engine/store/sql/row_codec.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

constexpr char kInsertSecret[] =
    "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING";
// Bind: before, after_id, through_id.
constexpr char kCountAudit[] = "SELECT count(*) FROM audit WHERE at < ?1 AND id > ?2 AND id <= ?3";
constexpr char kDeleteAudit[] = "DELETE FROM audit WHERE at < ?1 AND id > ?2 AND id <= ?3";
constexpr char kBeginPruning[] =
    "INSERT INTO audit_pruning (id, after_id, through_id) VALUES (1, ?, ?)";
constexpr char kEndPruning[] = "DELETE FROM audit_pruning";
constexpr char kReadSecret[] = "SELECT value FROM secrets WHERE name = ?";
constexpr size_t kSecretBytes = 32;

}  // namespace

absl::Status SqlStore::PutTenant(const TenantRow& row) {
  static const std::string sql = UpsertSql("tenants", "tenant_id, name, created_at", "tenant_id");
  return Change([&](SqlConnection& connection) {
    connection.Prepare(sql).Bind(row.tenant_id, row.name, row.created_at).Run();
    return absl::OkStatus();
  });
}

absl::Status SqlStore::PutKeys(std::span<const ApiKeyRow> rows, const AuditRow& audit) {
  static const std::string sql = UpsertSql("api_keys", kKeyColumns, "key_id");
  return Change([&](SqlConnection& connection) {
    for (const ApiKeyRow& row : rows) {
      Query query = connection.Prepare(sql);
      BindRow(query, row);
      query.Run();
    }
    InsertAudit(connection, audit);
    return absl::OkStatus();
  });
}

absl::Status SqlStore::AppendAudit(const AuditRow& row) {
  return Change([&](SqlConnection& connection) {
    InsertAudit(connection, row);
    return absl::OkStatus();
  });
}

absl::Status SqlStore::PruneAudit(const AuditPiece& piece, const AuditRow& record) {
  return Change([&](SqlConnection& connection) -> absl::Status {
    int64_t count = 0;
    {
      Query query = connection.Prepare(kCountAudit);
      query.Bind(piece.before, piece.after_id, piece.through_id).Next();
      count = query.Int();
    }
    if (count != piece.num_entries) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the audit log has %d entries above number %d and through %d, and %d are "
                          "to be deleted: nothing was deleted",
                          count, piece.after_id, piece.through_id, piece.num_entries));
    }
    connection.Prepare(kBeginPruning).Bind(piece.after_id, piece.through_id).Run();
    connection.Prepare(kDeleteAudit).Bind(piece.before, piece.after_id, piece.through_id).Run();
    connection.Prepare(kEndPruning).Run();
    InsertAudit(connection, record);
    return absl::OkStatus();
  });
}

bool HasSecret(SqlConnection& connection, const std::string& name) {
  Query query = connection.Prepare(kReadSecret);
  query.Bind(name);
  return query.Next();
}

absl::StatusOr<std::string> SqlStore::Secret(const std::string& name) {
  const std::string fresh = RandomBytes(kSecretBytes);
  std::string secret;
  const absl::Status status = Change([&](SqlConnection& connection) {
    connection.Prepare(kInsertSecret).Bind(name).BindBytes(fresh).Run();
    Query query = connection.Prepare(kReadSecret);
    query.Bind(name).Next();
    secret = query.Bytes();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return secret;
}

}  // namespace lathe::engine
