#include "services/api-gateway/json/tenants_json.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

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

TEST_CASE("TenantsJson: a key's scopes and end are read, and what is absent stays unset",
          "[json]") {
  const auto key =
      ReadBody(R"({"name":"ci","scopes":["read","train"],"expires_in_seconds":60})", kCreateKey);
  REQUIRE(key.ok());
  CHECK(key->tenant().empty());
  CHECK(key->scopes_size() == 2);
  CHECK(key->expires_in_seconds() == 60);
  CHECK_FALSE(ReadBody("{}", kCreateKey)->has_expires_in_seconds());
  CHECK(ErrorField(ReadBody(R"({"scopes":"read"})", kCreateKey).status()) == "/scopes");
  CHECK(ErrorField(ReadBody(R"({"scopes":[]})", kCreateKey).status()) == "/scopes");
  CHECK(ReadBody("{}", kRotateKey)->overlap_seconds() == 24 * 3600);
  CHECK(ReadBody(R"({"overlap_seconds":0})", kRotateKey)->overlap_seconds() == 0);
}

TEST_CASE("TenantsJson: a quota has the limits that are given, zero among them", "[json]") {
  const auto quota = ReadBody(R"({"adapters":0,"stored_bytes":5})", kQuota);
  REQUIRE(quota.ok());
  CHECK(quota->has_adapters());
  CHECK(quota->stored_bytes() == 5);
  CHECK_FALSE(quota->has_sessions());
  CHECK(QuotaToJson(*quota)["stored_bytes"] == 5);
  CHECK(ErrorField(ReadBody(R"({"adapters":"many"})", kQuota).status()) == "/adapters");
}

TEST_CASE("TenantsJson: listed keys and tenants say where their page is", "[json]") {
  v1::ListTenantKeysResponse keys;
  keys.add_keys()->set_key_id("abc");
  keys.mutable_keys(0)->add_scopes("read");
  keys.set_total_count(7);
  const Json listed = KeysToJson(keys, /*limit=*/1, /*offset=*/3);
  CHECK(listed["keys"][0]["scopes"] == Json::array({"read"}));
  CHECK(listed["keys"][0]["expires_at"].is_null());
  CHECK(listed["cursor"] == Json({{"limit", 1}, {"offset", 3}, {"total_count", 7}}));
  v1::ListTenantsResponse tenants;
  tenants.add_tenants()->set_adapters(2);
  tenants.mutable_tenants(0)->mutable_quota()->set_adapters(9);
  const Json json = TenantsToJson(tenants, /*limit=*/20, /*offset=*/0);
  CHECK(json["tenants"][0]["use"]["adapters"] == 2);
  CHECK(json["tenants"][0]["quota"]["adapters"] == 9);
}

}  // namespace
}  // namespace lathe::gateway
