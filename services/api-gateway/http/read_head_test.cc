#include "services/api-gateway/http/read_head.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

TEST_CASE("A target is split and decoded once, colons and all", "[http]") {
  const auto target = ParseTarget("/api/v1/training_runs/s:train:0/x%2541?limit=5&offset=a%20b+c");
  REQUIRE(target.ok());
  CHECK(target->path == "/api/v1/training_runs/s:train:0/x%2541");
  CHECK(target->segments ==
        std::vector<std::string>{"api", "v1", "training_runs", "s:train:0", "x%41"});
  REQUIRE(target->query.size() == 2);
  CHECK(target->query[0].value == "5");
  CHECK(target->query[1].value == "a b c");
}

TEST_CASE("A target that could escape its segment is refused", "[http]") {
  const auto text =
      GENERATE(as<std::string>(), "", "x", "/a/../b", "/a/%2e%2e/b", "/%2E/b", "/a%2fb", "/a%00b",
               "/a%0ab", "/a%c3%28", "/\xc3\xa9", "/a%2", "/a%zz");
  const auto target = ParseTarget(text);
  REQUIRE_FALSE(target.ok());
  CHECK(ErrorCode(target.status()) == "bad_path");
}

}  // namespace
}  // namespace lathe::gateway
