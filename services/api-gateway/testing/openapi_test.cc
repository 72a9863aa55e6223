// Tests that docs/openapi.json describes the routes of the route table.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/routes/docs_files.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

// Returns the operations by method and path: {"GET /docs": operation}.
std::map<std::string, Json> DocumentedOperations(const Json& document) {
  std::map<std::string, Json> operations;
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      operations[absl::AsciiStrToUpper(method) + " " + path] = operation;
    }
  }
  return operations;
}

std::set<std::string> ParametersOf(const std::string& pattern) {
  std::set<std::string> names;
  for (const std::string& segment : std::vector<std::string>(absl::StrSplit(pattern, '/'))) {
    if (!segment.empty() && segment[0] == '{') names.insert(segment.substr(1, segment.size() - 2));
  }
  return names;
}

// Returns the target of `value` if it is {"$ref": "#/components/…"}, and `value` otherwise.
const Json& Resolve(const Json& document, const Json& value) {
  if (!value.contains("$ref")) return value;
  return document.at(Json::json_pointer(value["$ref"].get<std::string>().substr(1)));
}

void CheckReferences(const Json& document, const Json& value) {
  if (value.is_object() && value.contains("$ref")) CHECK_NOTHROW(Resolve(document, value));
  for (const Json& child : value) {
    if (child.is_structured()) CheckReferences(document, child);
  }
}

TEST_CASE("OpenAPI: the file lists exactly the routes", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const Json document = Json::parse(OpenApiJson());
  const std::map<std::string, Json> documented = DocumentedOperations(document);
  std::set<std::string> served;
  for (const Route& route : gateway.gateway().router().routes()) {
    const std::string name = route.method + " " + route.pattern;
    served.insert(name);
    INFO(name << " is served: describe it in docs/openapi.json");
    REQUIRE(documented.count(name) == 1);
    const Json& operation = documented.at(name);
    CHECK(!operation["summary"].get<std::string>().empty());
    CHECK(operation["tags"].size() == 1);
    const bool needs_no_key = operation.contains("security") && operation["security"].empty();
    CHECK(needs_no_key == (route.access == Access::kPublic));
    std::set<std::string> parameters;
    for (const Json& parameter : operation.value("parameters", Json::array())) {
      const Json& resolved = Resolve(document, parameter);
      if (resolved["in"] == "path") parameters.insert(resolved["name"].get<std::string>());
    }
    CHECK(parameters == ParametersOf(route.pattern));
    const bool documents_errors = operation["responses"].contains("default");
    CHECK(documents_errors);
  }
  for (const auto& [name, operation] : documented) {
    INFO(name << " is in docs/openapi.json: no route serves it");
    CHECK(served.count(name) == 1);
  }
}

TEST_CASE("OpenAPI: every reference in the file leads somewhere", "[gateway]") {
  const Json document = Json::parse(OpenApiJson());
  CHECK(document["openapi"] == "3.1.0");
  CheckReferences(document, document);
}

TEST_CASE("OpenAPI: file and page are served without a key and load nothing from elsewhere",
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
  CHECK(Json::parse(client.Exchange("GET", "/docs/openapi.json").body)["paths"].size() > 20);
}

}  // namespace
}  // namespace lathe::gateway
