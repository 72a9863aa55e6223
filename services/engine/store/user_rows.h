// Rows of users, their roles and the sessions of browsers. Times are nanoseconds since the Unix
// epoch; 0 means "never".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

struct UserRow {
  std::string user_id;
  std::string issuer;   // of the identity provider; "proxy": a proxy names the users
  std::string subject;  // unique within the issuer
  std::string email;
  std::string name;
  std::string role;       // one of viewer, member, admin, operator
  std::string tenant_id;  // tenant in which the role holds
  int64_t created_at = 0;
  int64_t last_login_at = 0;
  int64_t disabled_at = 0;  // 0: enabled
};

// A role that an administrator gave. It goes before the role map while the map leads to the same
// tenant.
struct RoleBindingRow {
  std::string user_id;
  std::string tenant_id;
  std::string role;
  int64_t created_at = 0;
  std::string created_by;  // as AuditRow::actor
};

struct UserSessionRow {
  std::string session_hash;  // hex digest of the session's secret
  std::string user_id;       // empty: not a user's
  std::string key_id;        // empty: not an API key's
  std::string tenant_id;
  std::string role;  // as of the beginning; a user's current role is in UserRow
  int64_t created_at = 0;
  int64_t expires_at = 0;
  std::string user_agent;
  std::string ip_prefix;
};

struct StoredUsers {
  std::vector<UserRow> users;
  std::vector<RoleBindingRow> bindings;
  std::vector<UserSessionRow> sessions;
};

// One transaction.
struct UserChange {
  std::vector<UserRow> users;
  std::vector<RoleBindingRow> bindings;
  std::vector<RoleBindingRow> removed_bindings;  // user_id and tenant_id name them
  std::vector<UserSessionRow> sessions;
  std::vector<std::string> ended_sessions;  // session_hash of each
  int64_t expired_at = 0;  // deletes some of the sessions that expired by then; 0: none
  std::vector<AuditRow> audit;
};

}  // namespace lathe::engine
