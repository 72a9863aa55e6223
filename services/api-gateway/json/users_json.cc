#include "services/api-gateway/json/users_json.h"

#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

constexpr Field kUpdateUserFields[] = {
    {.name = "disabled", .about = "True: the user cannot sign in."},
    {.name = "role",
     .about = "mapped: the role map decides again at the next sign-in.",
     .schema = R"("enum": ["viewer", "member", "admin", "operator", "mapped"])"}};

Json SessionToJson(const v1::UserSession& session) {
  return {{"session_id", session.session_id()},
          {"created_at", TimestampText(session.created_at())},
          {"expires_at", TimestampText(session.expires_at())},
          {"user_agent", session.user_agent()},
          {"ip_prefix", session.ip_prefix()}};
}

}  // namespace

constexpr BodyFields<v1::UpdateUserRequest> kUpdateUser = {
    {"UpdateUserRequest", kUpdateUserFields}};

Json UserToJson(const v1::User& user) {
  return {{"user_id", user.user_id()},
          {"issuer", user.issuer()},
          {"subject", user.subject()},
          {"email", user.email()},
          {"name", user.name()},
          {"role", user.role()},
          {"role_is_bound", user.role_is_bound()},
          {"tenant", user.tenant()},
          {"created_at", TimestampText(user.created_at())},
          {"last_login_at", TimestampText(user.last_login_at())},
          {"disabled", user.disabled()}};
}

Json UsersToJson(const v1::ListUsersResponse& response) {
  Json users = Json::array();
  for (const v1::User& user : response.users()) users.push_back(UserToJson(user));
  return {{"users", std::move(users)}, {"total_count", response.total_count()}};
}

Json UpdatedUserToJson(const v1::UpdateUserResponse& response) {
  return UserToJson(response.user());
}

Json UserSessionsToJson(const v1::ListUserSessionsResponse& response) {
  Json sessions = Json::array();
  for (const v1::UserSession& session : response.sessions()) {
    sessions.push_back(SessionToJson(session));
  }
  return {{"sessions", std::move(sessions)}};
}

Json OwnSessionToJson(const v1::GetOwnSessionResponse& response, const std::string& csrf_token) {
  Json json = {{"user", nullptr},
               {"key", nullptr},
               {"tenant_id", response.tenant_id()},
               {"tenant", response.tenant()},
               {"role", response.role()},
               {"scopes", Json::array()},
               {"csrf_token", csrf_token},
               {"session_id", response.session().session_id()},
               {"expires_at", TimestampText(response.session().expires_at())}};
  if (response.has_user()) json["user"] = UserToJson(response.user());
  if (!response.key_id().empty()) {
    json["key"] = {{"key_id", response.key_id()}, {"name", response.key_name()}};
  }
  for (const std::string& scope : response.scopes()) json["scopes"].push_back(scope);
  return json;
}

absl::StatusOr<std::string> ReadApiKey(std::string_view body) {
  RETURN_IF_ERROR(CheckJson(body));
  const Json json = Json::parse(body, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto found = json.is_object() ? json.find("api_key") : json.end();
  if (json.is_object() && found != json.end() && found->is_string()) {
    return found->get<std::string>();
  }
  return WithDetail(absl::InvalidArgumentError("api_key is missing or not a text"), "invalid_field",
                    "/api_key");
}

}  // namespace lathe::gateway
