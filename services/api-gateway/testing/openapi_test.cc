// Tests that the OpenAPI document describes every route.
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

Json DocumentOf(RunningGateway& gateway) {
  HttpClient client(gateway.port());
  return Json::parse(client.Exchange("GET", "/docs/openapi.json").body);
}

// Returns the target of `value` if it is {"$ref": "#/components/…"}, and `value` otherwise.
const Json& Resolve(const Json& document, const Json& value) {
  if (!value.contains("$ref")) return value;
  return document.at(Json::json_pointer(value["$ref"].get<std::string>().substr(1)));
}

// Resolves all references in `value` and appends them to `references`.
void Follow(const Json& document, const Json& value, std::set<std::string>* references) {
  if (value.is_object() && value.contains("$ref")) {
    const auto reference = value["$ref"].get<std::string>();
    INFO("docs_page/openapi.json and the tables of fields have no " << reference);
    REQUIRE_NOTHROW(Resolve(document, value));
    if (references->insert(reference).second) {
      Follow(document, Resolve(document, value), references);
    }
  }
  for (const Json& child : value) {
    if (child.is_structured()) Follow(document, child, references);
  }
}

TEST_CASE("OpenAPI: every route is described", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const Json document = DocumentOf(gateway);
  std::set<std::string> tags;
  for (const Json& tag : document["tags"]) tags.insert(tag["name"].get<std::string>());
  for (const Route& route : gateway.gateway().router().routes()) {
    INFO(route.method << " " << route.pattern);
    if (route.is_mirror) {
      CHECK(route.access == Access::kSession);
      CHECK_FALSE(document["paths"].contains(route.pattern));
      continue;
    }
    const Json& operation = document["paths"][route.pattern][absl::AsciiStrToLower(route.method)];
    CHECK_FALSE(route.summary.empty());
    CHECK(operation["summary"] == route.summary);
    INFO("the tags of docs_page/openapi.json have: " << route.tag);
    CHECK(tags.count(route.tag) == 1);
    const bool takes_a_body =
        route.method == "POST" || route.method == "PUT" || route.method == "PATCH";
    if (!takes_a_body) CHECK(route.request.empty());
    const bool has_own_security =
        route.access == Access::kPublic || route.access == Access::kSession;
    CHECK(operation.contains("security") == has_own_security);
  }
}

TEST_CASE("OpenAPI: every reference leads somewhere, and every component is used", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const Json document = DocumentOf(gateway);
  CHECK(document["openapi"] == "3.1.0");
  std::set<std::string> references;
  Follow(document, document["paths"], &references);
  for (const char* kind : {"schemas", "parameters", "responses"}) {
    for (const auto& [name, component] : document["components"][kind].items()) {
      INFO(kind << "/" << name);
      CHECK(references.count("#/components/" + std::string(kind) + "/" + name) == 1);
    }
  }
}

TEST_CASE("OpenAPI: document and page are served without a key and load nothing from elsewhere",
          "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  for (const char* path : {"/docs", "/docs/page.js", "/docs/page.css", "/docs/openapi.json"}) {
    INFO(path);
    const HttpAnswer answer = client.Exchange("GET", path, "", {{"x-api-key", ""}});
    CHECK(answer.status == 200);
    CHECK(answer.headers.at("content-security-policy") ==
          "default-src 'self'; frame-ancestors 'none'");
    const bool is_page = path != std::string("/docs/openapi.json");
    if (is_page) CHECK(answer.body.find("://") == std::string::npos);
  }
}

}  // namespace
}  // namespace lathe::gateway
