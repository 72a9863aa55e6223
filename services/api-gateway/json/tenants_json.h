// Administration of tenants as JSON: keys, quotas and the audit log, and the caller's key and
// tokens.
#pragma once

#include <cstdint>

#include "protos/lathe/v1/tenants.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

extern const BodyFields<v1::CreateKeyRequest> kCreateKey;
// Without the key.
extern const BodyFields<v1::RotateKeyRequest> kRotateKey;
extern const BodyFields<v1::Quota> kQuota;

Json KeysToJson(const v1::ListTenantKeysResponse& response, int64_t limit, int64_t offset);
Json CreatedKeyToJson(const v1::CreateKeyResponse& response);
Json RotatedKeyToJson(const v1::RotateKeyResponse& response);
Json TenantsToJson(const v1::ListTenantsResponse& response, int64_t limit, int64_t offset);
Json QuotaToJson(const v1::Quota& quota);

Json OwnKeyToJson(const v1::GetOwnKeyResponse& response);
Json TokenToJson(const v1::ExchangeTokenResponse& response);
Json AuditToJson(const v1::ListAuditResponse& response);

}  // namespace lathe::gateway
