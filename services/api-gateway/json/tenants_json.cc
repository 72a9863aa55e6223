#include "services/api-gateway/json/tenants_json.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

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

}  // namespace

Json OwnKeyToJson(const v1::GetOwnKeyResponse& response) {
  Json json = {{"key_id", NumberOf(response.key_id())},
               {"name", response.name()},
               {"note", ""},
               {"lathe_key_id", response.key_id()},
               {"scopes", Json::array()},
               {"created_at", TimestampText(response.created_at())},
               {"expires_at", nullptr}};
  for (const std::string& scope : response.scopes()) json["scopes"].push_back(scope);
  if (response.has_expires_at()) json["expires_at"] = TimestampText(response.expires_at());
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
  return {{"entries", std::move(entries)}};
}

}  // namespace lathe::gateway
