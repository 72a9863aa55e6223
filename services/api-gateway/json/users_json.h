// Users and sessions of browsers as JSON.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/users.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Without the user.
extern const BodyFields<v1::UpdateUserRequest> kUpdateUser;

Json UserToJson(const v1::User& user);
Json UsersToJson(const v1::ListUsersResponse& response);
Json UpdatedUserToJson(const v1::UpdateUserResponse& response);
Json UserSessionsToJson(const v1::ListUserSessionsResponse& response);
// `csrf_token` is that of the session.
Json OwnSessionToJson(const v1::GetOwnSessionResponse& response, const std::string& csrf_token);

// Reads {"api_key": "…"}. Errors are InvalidArgument and never quote the body.
absl::StatusOr<std::string> ReadApiKey(std::string_view body);

}  // namespace lathe::gateway
