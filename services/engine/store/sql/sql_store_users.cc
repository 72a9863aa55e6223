// SQL of users, role bindings and sessions of browsers.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

constexpr char kUserColumns[] =
    "user_id, issuer, subject, email, name, role, tenant_id, created_at, last_login_at, "
    "disabled_at";
constexpr char kBindingColumns[] = "user_id, tenant_id, role, created_at, created_by";
constexpr char kUserSessionColumns[] =
    "session_hash, user_id, key_id, tenant_id, role, created_at, expires_at, user_agent, "
    "ip_prefix";
constexpr char kDeleteBinding[] = "DELETE FROM role_bindings WHERE user_id = ? AND tenant_id = ?";
constexpr char kDeleteExpired[] =
    "DELETE FROM user_sessions WHERE session_hash IN"
    " (SELECT session_hash FROM user_sessions WHERE expires_at <= ? LIMIT ?)";
constexpr char kDeleteSession[] = "DELETE FROM user_sessions WHERE session_hash = ?";

UserRow ReadUser(Query& query) {
  UserRow row;
  row.user_id = query.Text();
  row.issuer = query.Text();
  row.subject = query.Text();
  row.email = query.Text();
  row.name = query.Text();
  row.role = query.Text();
  row.tenant_id = query.Text();
  row.created_at = query.Int();
  row.last_login_at = query.Int();
  row.disabled_at = query.Int();
  return row;
}

RoleBindingRow ReadBinding(Query& query) {
  RoleBindingRow row;
  row.user_id = query.Text();
  row.tenant_id = query.Text();
  row.role = query.Text();
  row.created_at = query.Int();
  row.created_by = query.Text();
  return row;
}

UserSessionRow ReadSession(Query& query) {
  UserSessionRow row;
  row.session_hash = query.Text();
  row.user_id = query.Text();
  row.key_id = query.Text();
  row.tenant_id = query.Text();
  row.role = query.Text();
  row.created_at = query.Int();
  row.expires_at = query.Int();
  row.user_agent = query.Text();
  row.ip_prefix = query.Text();
  return row;
}

void WriteUser(SqlConnection& connection, const UserRow& row) {
  static const std::string sql = UpsertSql("users", kUserColumns, "user_id");
  connection.Prepare(sql)
      .Bind(row.user_id, row.issuer, row.subject, row.email, row.name, row.role, row.tenant_id,
            row.created_at, row.last_login_at, row.disabled_at)
      .Run();
}

void WriteBinding(SqlConnection& connection, const RoleBindingRow& row) {
  static const std::string sql = UpsertSql("role_bindings", kBindingColumns, "user_id, tenant_id");
  connection.Prepare(sql)
      .Bind(row.user_id, row.tenant_id, row.role, row.created_at, row.created_by)
      .Run();
}

void WriteSession(SqlConnection& connection, const UserSessionRow& row) {
  static const std::string sql = UpsertSql("user_sessions", kUserSessionColumns, "session_hash");
  connection.Prepare(sql)
      .Bind(row.session_hash, row.user_id, row.key_id, row.tenant_id, row.role, row.created_at,
            row.expires_at, row.user_agent, row.ip_prefix)
      .Run();
}

}  // namespace

absl::StatusOr<StoredUsers> SqlStore::ListUsers(int64_t now) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<StoredUsers> {
    StoredUsers stored;
    {
      Query query = connection.Prepare(absl::StrCat("SELECT ", kUserColumns, " FROM users"));
      while (query.Next()) stored.users.push_back(ReadUser(query));
    }
    {
      Query query =
          connection.Prepare(absl::StrCat("SELECT ", kBindingColumns, " FROM role_bindings"));
      while (query.Next()) stored.bindings.push_back(ReadBinding(query));
    }
    Query query = connection.Prepare(
        absl::StrCat("SELECT ", kUserSessionColumns, " FROM user_sessions WHERE expires_at > ?"));
    query.Bind(now);
    while (query.Next()) stored.sessions.push_back(ReadSession(query));
    return stored;
  });
}

absl::Status SqlStore::ChangeUsers(const UserChange& change) {
  return Change([&](SqlConnection& connection) {
    for (const UserRow& row : change.users) WriteUser(connection, row);
    for (const RoleBindingRow& row : change.bindings) WriteBinding(connection, row);
    for (const RoleBindingRow& row : change.removed_bindings) {
      connection.Prepare(kDeleteBinding).Bind(row.user_id, row.tenant_id).Run();
    }
    for (const std::string& hash : change.ended_sessions) {
      connection.Prepare(kDeleteSession).Bind(hash).Run();
    }
    if (change.expired_at > 0) {
      connection.Prepare(kDeleteExpired).Bind(change.expired_at, kMaxPurgedRows).Run();
    }
    for (const UserSessionRow& row : change.sessions) WriteSession(connection, row);
    for (const AuditRow& row : change.audit) InsertAudit(connection, row);
    return absl::OkStatus();
  });
}

}  // namespace lathe::engine
