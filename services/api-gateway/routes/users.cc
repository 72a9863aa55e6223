// Routes for administrators: users, their roles and their sessions.
#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/users_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kDefaultUsers = 100;
constexpr char kUsersTag[] = "users";

absl::StatusOr<v1::ListUsersRequest> DecodeListUsers(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, kDefaultUsers));
  v1::ListUsersRequest message;
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

absl::StatusOr<v1::UpdateUserRequest> DecodeUpdateUser(const Request& request) {
  ASSIGN_OR_RETURN(v1::UpdateUserRequest message, ReadJsonBody(request, kUpdateUser));
  message.set_user_id(request.path_parameters[0]);
  return message;
}

v1::ListUserSessionsRequest DecodeListSessions(const Request& request) {
  v1::ListUserSessionsRequest message;
  message.set_user_id(request.path_parameters[0]);
  return message;
}

v1::EndUserSessionRequest DecodeEndSession(const Request& request) {
  v1::EndUserSessionRequest message;
  message.set_user_id(request.path_parameters[0]);
  message.set_session_id(request.path_parameters[1]);
  return message;
}

}  // namespace

std::vector<Route> UserRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "GET",
       .pattern = "/api/v1/users",
       .tag = kUsersTag,
       .summary = "The tenant's users",
       .description = "Needs the scope admin. An operator sees the users of all tenants.",
       .query = {"limit", "offset"},
       .answer = "Users",
       .handler = RpcRoute(engine, &UsersStub::ListUsers, DecodeListUsers,
                           [](const v1::ListUsersRequest&, const v1::ListUsersResponse& answer) {
                             return JsonResponse(UsersToJson(answer));
                           })},
      {.method = "PATCH",
       .pattern = "/api/v1/users/{user_id}",
       .tag = kUsersTag,
       .summary = "Change a user's role, or disable a user",
       .description = "Ends all sessions of the user.",
       .request = "UpdateUserRequest",
       .answer = "User",
       .handler = RpcRoute(engine, &UsersStub::UpdateUser, DecodeUpdateUser,
                           [](const v1::UpdateUserRequest&, const v1::UpdateUserResponse& answer) {
                             return JsonResponse(UpdatedUserToJson(answer));
                           })},
      {.method = "GET",
       .pattern = "/api/v1/users/{user_id}/sessions",
       .tag = kUsersTag,
       .summary = "A user's sessions, newest first",
       .answer = "UserSessions",
       .handler = RpcRoute(
           engine, &UsersStub::ListUserSessions, DecodeListSessions,
           [](const v1::ListUserSessionsRequest&, const v1::ListUserSessionsResponse& answer) {
             return JsonResponse(UserSessionsToJson(answer));
           })},
      {.method = "DELETE",
       .pattern = "/api/v1/users/{user_id}/sessions/{user_session_id}",
       .tag = kUsersTag,
       .summary = "End a session of a user",
       .handler = RpcRoute(engine, &UsersStub::EndUserSession, DecodeEndSession,
                           [](const v1::EndUserSessionRequest&, const v1::EndUserSessionResponse&) {
                             return EmptyResponse();
                           })},
  };
}

}  // namespace lathe::gateway
