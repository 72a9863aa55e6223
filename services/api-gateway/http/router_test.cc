#include "services/api-gateway/http/router.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

Router MakeRouter() {
  return Router(
      {{.method = "GET", .pattern = "/api/v1/runs/{id}", .handler = {}},
       {.method = "POST", .pattern = "/api/v1/runs/{id}/c/{kind}/{name}", .handler = {}},
       {.method = "DELETE", .pattern = "/api/v1/runs/{id}/c/{kind}/{name}", .handler = {}}});
}

TEST_CASE("Parameters of a pattern match one segment each", "[http]") {
  const Router router = MakeRouter();
  const auto match = router.Find("DELETE", "", {"api", "v1", "runs", "s:0", "c", "weights", "1"});
  REQUIRE(match.ok());
  CHECK(match->route->method == "DELETE");
  CHECK(match->path_parameters == std::vector<std::string>{"s:0", "weights", "1"});
  CHECK_FALSE(router.Find("GET", "", {"api", "v1", "runs", ""}).ok());
}

TEST_CASE("HEAD is answered by the routes of GET alone", "[http]") {
  CHECK(MakeRouter().Find("HEAD", "", {"api", "v1", "runs", "s:0"})->route->method == "GET");
  CHECK_FALSE(MakeRouter().Find("HEAD", "", {"api", "v1", "runs", "s:0", "c", "w", "1"}).ok());
}

TEST_CASE("A known path with another method names the allowed ones", "[http]") {
  const auto match =
      MakeRouter().Find("PUT", "", {"api", "v1", "runs", "s:0", "c", "weights", "1"});
  CHECK(ErrorCode(match.status()) == "method_not_allowed");
  CHECK(ErrorField(match.status()) == "POST, DELETE");
}

TEST_CASE("An unknown path is not found and names its nearest neighbour", "[http]") {
  const auto match = MakeRouter().Find("GET", "/api/v1/run/{id}", {"api", "v1", "run", "x"});
  CHECK(match.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(match.status().message()).find("/api/v1/runs/{id}") != std::string::npos);
}

}  // namespace
}  // namespace lathe::gateway
