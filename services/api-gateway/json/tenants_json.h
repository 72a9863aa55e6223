// A caller's key, tokens and the audit log as JSON.
#pragma once

#include "protos/lathe/v1/tenants.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

Json OwnKeyToJson(const v1::GetOwnKeyResponse& response);
Json TokenToJson(const v1::ExchangeTokenResponse& response);
Json AuditToJson(const v1::ListAuditResponse& response);

}  // namespace lathe::gateway
