// Sessions and the service itself: JSON <-> lathe.v1.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Reads all fields but `ordering`, which is not in the body.
absl::StatusOr<v1::CreateSessionRequest> CreateSessionFromJson(const Json& body);
Json CreateSessionToJson(const v1::CreateSessionResponse& response);

absl::StatusOr<v1::HeartbeatRequest> HeartbeatFromJson(const Json& body);

// Reads {"reason": {"type": "success"}, "detail": null}. An absent reason means success.
absl::StatusOr<v1::FinishSessionRequest> FinishSessionFromJson(const Json& body,
                                                               const std::string& session_id);

Json ListSessionsToJson(const v1::ListSessionsResponse& response, int64_t limit, int64_t offset);
Json GetSessionToJson(const v1::GetSessionResponse& response);
Json CapabilitiesToJson(const v1::GetCapabilitiesResponse& response);

// Returns {"offset", "limit", "total_count"}.
Json CursorToJson(int64_t limit, int64_t offset, int64_t total_count);

}  // namespace lathe::gateway
