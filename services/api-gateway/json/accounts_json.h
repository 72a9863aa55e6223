// A tenant's account as JSON: projects, session search, usage, the caller's key, tokens and the
// audit log.
#pragma once

#include <string>

#include "protos/lathe/v1/accounts.pb.h"
#include "protos/lathe/v1/tenants.pb.h"
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

Json OwnKeyToJson(const v1::GetOwnKeyResponse& response);
Json TokenToJson(const v1::ExchangeTokenResponse& response);
Json AuditToJson(const v1::ListAuditResponse& response);

}  // namespace lathe::gateway
