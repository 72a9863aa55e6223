// Sessions, training runs, checkpoints and the service itself: JSON <-> lathe.v1.
#pragma once

#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Without `ordering`, which is not in the body.
extern const BodyFields<v1::CreateSessionRequest> kCreateSession;
Json CreateSessionToJson(const v1::CreateSessionResponse& response);
extern const BodyFields<v1::HeartbeatRequest> kHeartbeat;
// Without the session. An absent reason means success.
extern const BodyFields<v1::FinishSessionRequest> kFinishSession;

Json ListSessionsToJson(const v1::ListSessionsResponse& response, int64_t limit, int64_t offset);
Json GetSessionToJson(const v1::GetSessionResponse& response);
Json CapabilitiesToJson(const v1::GetCapabilitiesResponse& response);

// Returns {"offset", "limit", "total_count"}.
Json CursorToJson(int64_t limit, int64_t offset, int64_t total_count);

Json RunToJson(const v1::Run& run);
Json CheckpointToJson(const v1::Checkpoint& checkpoint);
Json ListRunsToJson(const v1::ListRunsResponse& response, int64_t limit, int64_t offset);
Json ListCheckpointsToJson(const v1::ListCheckpointsResponse& response, int64_t limit,
                           int64_t offset);

}  // namespace lathe::gateway
