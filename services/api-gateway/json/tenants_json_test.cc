#include "services/api-gateway/json/tenants_json.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

TEST_CASE("TenantsJson: a key has an integer for an id, its own for each key", "[json]") {
  v1::GetOwnKeyResponse key;
  key.set_key_id("abc");
  key.set_name("laptop");
  key.set_tenant("default");
  const Json json = OwnKeyToJson(key);
  CHECK(json["key_id"].is_number_integer());
  CHECK(json["key_id"].get<int64_t>() >= 0);
  CHECK(json["key_id"].get<int64_t>() < int64_t{1} << 53);
  CHECK(json["details"]["org_details"]["name"] == "default");
  CHECK(json["details"]["user_details"]["email"].is_string());
  CHECK(json["expires_at"].is_null());
  key.set_key_id("abd");
  CHECK(OwnKeyToJson(key)["key_id"] != json["key_id"]);
}

TEST_CASE("TenantsJson: an audit entry of a checkpoint names its model", "[json]") {
  v1::ListAuditResponse response;
  v1::AuditEntry* entry = response.add_entries();
  entry->set_event("checkpoint_publish");
  entry->set_object("tinker://s:train:0/weights/a");
  entry->set_outcome("ok");
  v1::NamedString* detail = entry->add_details();
  detail->set_name("scopes");
  detail->set_value("read");
  response.add_entries()->set_object("k1");
  const Json entries = AuditToJson(response)["entries"];
  CHECK(entries[0]["model_id"] == "s:train:0");
  CHECK(entries[0]["tinker_path"] == "tinker://s:train:0/weights/a");
  CHECK(entries[0]["event_details"]["scopes"] == "read");
  CHECK(entries[0]["event_details"]["outcome"] == "ok");
  CHECK_FALSE(entries[1].contains("tinker_path"));
}

}  // namespace
}  // namespace lathe::gateway
