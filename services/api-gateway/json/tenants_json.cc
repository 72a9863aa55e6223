#include "services/api-gateway/json/tenants_json.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/json/session_json.h"

namespace lathe::gateway {
namespace {

constexpr char kScopeNames[] =
    R"("enum": ["train", "sample", "read", "checkpoints:write", "admin", "operator"])";
constexpr Field kCreateKeyFields[] = {
    {.name = "tenant",
     .about =
         "Absent: the caller's own. Another one, which is made if it does not exist, needs the "
         "scope operator.",
     .schema = R"("maxLength": 64)"},
    {.name = "name", .about = "For people.", .schema = R"("maxLength": 128)"},
    {.name = "scopes",
     .min_count = 1,
     .max_count = 16,
     .about = "Absent: train, sample, read and checkpoints:write.",
     .items = kScopeNames},
    {.name = "expires_in_seconds",
     .about = "Absent: the key ends when it is revoked.",
     .schema = R"("minimum": 1, "maximum": 315360000)"},
};
constexpr Field kRotateKeyFields[] = {
    {.name = "overlap_seconds",
     .fallback = int64_t{24 * 3600},
     .about = "Time for which the old key still works; 0: it stops at once.",
     .schema = R"("minimum": 0, "maximum": 315360000, "default": 86400)"},
};

constexpr char kLimit[] = R"("minimum": 0)";
// 0: no limit.
constexpr Field kQuotaFields[] = {
    {.name = "requests_per_minute", .schema = kLimit},
    {.name = "tokens_per_minute", .schema = kLimit},
    {.name = "queued_bytes", .schema = kLimit},
    {.name = "stored_bytes", .schema = kLimit},
    {.name = "adapters", .schema = kLimit},
    {.name = "sessions", .schema = kLimit},
    {.name = "samplers", .schema = kLimit},
    {.name = "unfetched_results", .schema = kLimit},
    {.name = "unfetched_bytes", .schema = kLimit},
};

constexpr std::string_view kTinkerScheme = "tinker://";

// Returns an integer for a key id, because the SDK requires one. It is 53 bits of FNV-1a, which
// every JSON reader represents exactly.
int64_t NumberOf(const std::string& key_id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : key_id) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<int64_t>(hash >> 11);
}

// Returns the model id of tinker://{model_id}/…, or "" for any other object.
std::string ModelOfPath(std::string_view object) {
  if (!object.starts_with(kTinkerScheme)) return "";
  object.remove_prefix(kTinkerScheme.size());
  return std::string(object.substr(0, object.find('/')));
}

Json EntryToJson(const v1::AuditEntry& entry) {
  Json details = {{"actor", entry.actor()}, {"object", entry.object()}};
  details["outcome"] = entry.outcome();
  for (const v1::NamedString& detail : entry.details()) details[detail.name()] = detail.value();
  Json json = {{"timestamp", TimestampText(entry.at())},
               {"event", entry.event()},
               {"event_details", std::move(details)}};
  if (const std::string model_id = ModelOfPath(entry.object()); !model_id.empty()) {
    json["model_id"] = model_id;
    json["tinker_path"] = entry.object();
  }
  return json;
}

Json ScopesToJson(const google::protobuf::RepeatedPtrField<std::string>& scopes) {
  Json json = Json::array();
  for (const std::string& scope : scopes) json.push_back(scope);
  return json;
}

template <typename Response>
Json EndToJson(const Response& response) {
  return response.has_expires_at() ? Json(TimestampText(response.expires_at())) : Json(nullptr);
}

// Returns a key that was made, which no other call returns.
template <typename Response>
Json NewKeyToJson(const Response& response) {
  return {{"key_id", response.key_id()},
          {"api_key", response.api_key()},
          {"expires_at", EndToJson(response)}};
}

Json KeyToJson(const v1::ApiKeyInfo& key) {
  return {{"key_id", key.key_id()},
          {"tenant", key.tenant()},
          {"name", key.name()},
          {"scopes", ScopesToJson(key.scopes())},
          {"created_at", TimestampText(key.created_at())},
          {"expires_at", EndToJson(key)},
          {"revoked", key.revoked()}};
}

Json TenantToJson(const v1::TenantInfo& tenant) {
  return {{"name", tenant.name()},
          {"created_at", TimestampText(tenant.created_at())},
          {"quota", QuotaToJson(tenant.quota())},
          {"use",
           {{"stored_bytes", tenant.stored_bytes()},
            {"adapters", tenant.adapters()},
            {"sessions", tenant.sessions()},
            {"samplers", tenant.samplers()},
            {"unfetched_results", tenant.unfetched_results()},
            {"unfetched_bytes", tenant.unfetched_bytes()}}}};
}

}  // namespace

constexpr BodyFields<v1::CreateKeyRequest> kCreateKey = {{"CreateKeyRequest", kCreateKeyFields}};
constexpr BodyFields<v1::RotateKeyRequest> kRotateKey = {{"RotateKeyRequest", kRotateKeyFields}};
constexpr BodyFields<v1::Quota> kQuota = {{"Quota", kQuotaFields}};

Json KeysToJson(const v1::ListTenantKeysResponse& response, int64_t limit, int64_t offset) {
  Json keys = Json::array();
  for (const v1::ApiKeyInfo& key : response.keys()) keys.push_back(KeyToJson(key));
  return {{"keys", std::move(keys)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

Json CreatedKeyToJson(const v1::CreateKeyResponse& response) { return NewKeyToJson(response); }

Json RotatedKeyToJson(const v1::RotateKeyResponse& response) { return NewKeyToJson(response); }

Json TenantsToJson(const v1::ListTenantsResponse& response, int64_t limit, int64_t offset) {
  Json tenants = Json::array();
  for (const v1::TenantInfo& tenant : response.tenants()) tenants.push_back(TenantToJson(tenant));
  return {{"tenants", std::move(tenants)},
          {"cursor", CursorToJson(limit, offset, response.total_count())}};
}

Json QuotaToJson(const v1::Quota& quota) {
  return {{"requests_per_minute", quota.requests_per_minute()},
          {"tokens_per_minute", quota.tokens_per_minute()},
          {"queued_bytes", quota.queued_bytes()},
          {"stored_bytes", quota.stored_bytes()},
          {"adapters", quota.adapters()},
          {"sessions", quota.sessions()},
          {"samplers", quota.samplers()},
          {"unfetched_results", quota.unfetched_results()},
          {"unfetched_bytes", quota.unfetched_bytes()}};
}

Json OwnKeyToJson(const v1::GetOwnKeyResponse& response) {
  Json json = {{"key_id", NumberOf(response.key_id())},
               {"name", response.name()},
               {"note", ""},
               {"lathe_key_id", response.key_id()},
               {"scopes", ScopesToJson(response.scopes())},
               {"created_at", TimestampText(response.created_at())},
               {"expires_at", EndToJson(response)}};
  // A key belongs to a tenant, not to a person. The tenant's name replaces the expected e-mail
  // address.
  json["details"] = {{"org_details", {{"name", response.tenant()}}},
                     {"user_details", {{"email", response.tenant()}}}};
  return json;
}

Json TokenToJson(const v1::ExchangeTokenResponse& response) { return {{"jwt", response.jwt()}}; }

Json AuditToJson(const v1::ListAuditResponse& response) {
  Json entries = Json::array();
  for (const v1::AuditEntry& entry : response.entries()) entries.push_back(EntryToJson(entry));
  return {{"entries", std::move(entries)},
          {"total_count", response.total_count()},
          {"is_cut", response.is_cut()}};
}

}  // namespace lathe::gateway
