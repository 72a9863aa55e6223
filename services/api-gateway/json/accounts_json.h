// A tenant's account as JSON: projects, session search and usage.
#pragma once

#include <string>

#include "protos/lathe/v1/accounts.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Without the session.
extern const BodyFields<v1::AssignSessionProjectRequest> kAssignProject;
extern const BodyFields<v1::SearchSessionsRequest> kSearchSessions;
Json SearchToJson(const v1::SearchSessionsResponse& response);

// One event per usage record and kind of use. Ordered as the SDK reads them: by hour, then by
// tokens, most first.
Json UsageToJson(const v1::ListUsageResponse& response);
Json CheckpointStorageToJson(const v1::GetCheckpointStorageResponse& response);

}  // namespace lathe::gateway
