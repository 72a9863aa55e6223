#include "services/engine/rpc/users_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

constexpr int64_t kDefaultUsers = 100;
constexpr int64_t kMaxUsersInPage = 1000;
// Role of a request that removes the bound role.
constexpr char kMapped[] = "mapped";

// Returns the presented session. FailedPrecondition ("needs_session"): there is none.
absl::StatusOr<UserBook::Found> SessionOf(const KeyRing& keys,
                                          const grpc::CallbackServerContext& context) {
  std::optional<UserBook::Found> found = keys.users().Find(UserSessionOf(context));
  if (found) return *std::move(found);
  return WithDetail(
      absl::FailedPreconditionError("this call describes a session, and an API key has none"),
      "needs_session");
}

void DescribeSession(const UserSessionRow& row, v1::UserSession* session) {
  session->set_session_id(UserBook::SessionIdOf(row));
  *session->mutable_created_at() = ToTimestamp(row.created_at);
  *session->mutable_expires_at() = ToTimestamp(row.expires_at);
  session->set_user_agent(row.user_agent);
  session->set_ip_prefix(row.ip_prefix);
}

Actor ActorOf(const Caller& caller) { return {.id = caller.key_id, .tenant_id = caller.tenant_id}; }

absl::Status NeedsOperator(const std::string& what) {
  return WithDetail(absl::PermissionDeniedError(what + " needs the role operator"),
                    "needs_operator", "role");
}

}  // namespace

void UsersService::Describe(const UserRow& row, v1::User* user) const {
  user->set_user_id(row.user_id);
  user->set_issuer(row.issuer);
  user->set_subject(row.subject);
  user->set_email(row.email);
  user->set_name(row.name);
  user->set_role(row.role);
  user->set_tenant(keys_.TenantName(row.tenant_id));
  *user->mutable_created_at() = ToTimestamp(row.created_at);
  *user->mutable_last_login_at() = ToTimestamp(row.last_login_at);
  user->set_disabled(row.disabled_at != 0);
  user->set_role_is_bound(keys_.users().HasBoundRole(row));
}

UsersService::Reactor* UsersService::GetOwnSession(Context* context,
                                                   const v1::GetOwnSessionRequest*,
                                                   v1::GetOwnSessionResponse* response) {
  return AnswerCall(keys_, context, "Users.GetOwnSession",
                    [&](const Caller& caller) -> absl::Status {
                      ASSIGN_OR_RETURN(const UserBook::Found found, SessionOf(keys_, *context));
                      if (found.user) Describe(*found.user, response->mutable_user());
                      response->set_role(found.user ? found.user->role : found.session.role);
                      if (!found.session.key_id.empty()) {
                        ASSIGN_OR_RETURN(const ApiKeyRow key, keys_.Find(found.session.key_id));
                        response->set_key_id(key.key_id);
                        response->set_key_name(key.name);
                      }
                      response->set_tenant_id(caller.tenant_id);
                      response->set_tenant(caller.tenant_name);
                      for (const std::string& word : caller.scopes.Words())
                        response->add_scopes(word);
                      DescribeSession(found.session, response->mutable_session());
                      return absl::OkStatus();
                    });
}

UsersService::Reactor* UsersService::EndOwnSession(Context* context,
                                                   const v1::EndOwnSessionRequest*,
                                                   v1::EndOwnSessionResponse* response) {
  return ReadCall(reads_, keys_, context, "Users.EndOwnSession",
                  [this, context, response](const Caller& caller) -> absl::Status {
                    ASSIGN_OR_RETURN(const UserBook::Found found, SessionOf(keys_, *context));
                    if (found.user) response->set_issuer(found.user->issuer);
                    return keys_.users().End(found.session, ActorOf(caller), "user_sign_out");
                  });
}

UsersService::Reactor* UsersService::ListUsers(Context* context,
                                               const v1::ListUsersRequest* request,
                                               v1::ListUsersResponse* response) {
  return ReadCall(
      reads_, keys_, context, "Users.ListUsers",
      [this, request, response](const Caller& caller) -> absl::Status {
        const int64_t limit = request->limit() == 0 ? kDefaultUsers : request->limit();
        if (limit < 0 || limit > kMaxUsersInPage) {
          return Invalid("invalid_field", "limit",
                         absl::StrFormat("limit is %d, expected 0 to %d", limit, kMaxUsersInPage));
        }
        if (request->offset() < 0) {
          return Invalid("invalid_field", "offset",
                         absl::StrFormat("offset is %d, minimum is 0", request->offset()));
        }
        const std::vector<UserRow> rows =
            keys_.users().Users(caller.scopes.HasAny(Scope::kOperator) ? "" : caller.tenant_id);
        const auto num_rows = static_cast<int64_t>(rows.size());
        response->set_total_count(num_rows);
        const int64_t begin = std::min(request->offset(), num_rows);
        const int64_t end = begin + std::min(limit, num_rows - begin);
        for (int64_t i = begin; i < end; ++i) Describe(rows[i], response->add_users());
        return absl::OkStatus();
      });
}

absl::StatusOr<UserRow> UsersService::FindVisible(const Caller& caller,
                                                  const std::string& user_id) const {
  std::optional<UserRow> row = keys_.users().FindUser(user_id);
  if (row && (caller.scopes.HasAny(Scope::kOperator) || row->tenant_id == caller.tenant_id))
    return *std::move(row);
  return WithDetail(absl::NotFoundError(absl::StrFormat("user '%s' does not exist",
                                                        user_id.substr(0, kMaxShownBytes))),
                    "not_found", "user_id");
}

absl::Status UsersService::Update(const Caller& caller, const v1::UpdateUserRequest& request,
                                  v1::UpdateUserResponse& response) {
  ASSIGN_OR_RETURN(UserRow row, FindVisible(caller, request.user_id()));
  if (row.role == UserRoleWord(UserRole::kOperator) && !caller.scopes.HasAny(Scope::kOperator)) {
    return NeedsOperator("changing an operator");
  }
  UserBook::Edit edit;
  if (request.has_disabled()) edit.disabled = request.disabled();
  if (request.has_role() && request.role() == kMapped) {
    edit.bound_role = "";
  } else if (request.has_role()) {
    ASSIGN_OR_RETURN(const UserRole role, ParseUserRole(request.role(), "role"));
    if (role == UserRole::kOperator && !caller.scopes.HasAny(Scope::kOperator)) {
      return NeedsOperator("making an operator");
    }
    edit.bound_role = UserRoleWord(role);
  }
  if (edit.bound_role || edit.disabled) {
    ASSIGN_OR_RETURN(row, keys_.users().Update(row.user_id, edit, ActorOf(caller)));
  }
  Describe(row, response.mutable_user());
  return absl::OkStatus();
}

UsersService::Reactor* UsersService::UpdateUser(Context* context,
                                                const v1::UpdateUserRequest* request,
                                                v1::UpdateUserResponse* response) {
  return ReadCall(reads_, keys_, context, "Users.UpdateUser",
                  [this, request, response](const Caller& caller) {
                    return Update(caller, *request, *response);
                  });
}

UsersService::Reactor* UsersService::ListUserSessions(Context* context,
                                                      const v1::ListUserSessionsRequest* request,
                                                      v1::ListUserSessionsResponse* response) {
  return AnswerCall(keys_, context, "Users.ListUserSessions",
                    [&](const Caller& caller) -> absl::Status {
                      ASSIGN_OR_RETURN(const UserRow row, FindVisible(caller, request->user_id()));
                      for (const UserSessionRow& session : keys_.users().SessionsOf(row.user_id)) {
                        DescribeSession(session, response->add_sessions());
                      }
                      return absl::OkStatus();
                    });
}

UsersService::Reactor* UsersService::EndUserSession(Context* context,
                                                    const v1::EndUserSessionRequest* request,
                                                    v1::EndUserSessionResponse*) {
  return ReadCall(reads_, keys_, context, "Users.EndUserSession",
                  [this, request](const Caller& caller) -> absl::Status {
                    ASSIGN_OR_RETURN(const UserRow row, FindVisible(caller, request->user_id()));
                    if (row.role == UserRoleWord(UserRole::kOperator) &&
                        !caller.scopes.HasAny(Scope::kOperator)) {
                      return NeedsOperator("ending an operator's session");
                    }
                    for (const UserSessionRow& session : keys_.users().SessionsOf(row.user_id)) {
                      if (UserBook::SessionIdOf(session) != request->session_id()) continue;
                      const Actor actor{.id = caller.key_id, .tenant_id = row.tenant_id};
                      return keys_.users().End(session, actor, "user_session_end");
                    }
                    return WithDetail(absl::NotFoundError(absl::StrFormat(
                                          "session '%s' does not exist",
                                          request->session_id().substr(0, kMaxShownBytes))),
                                      "not_found", "session_id");
                  });
}

}  // namespace lathe::engine
