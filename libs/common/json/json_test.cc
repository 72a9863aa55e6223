#include "libs/common/json/json.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

TEST_CASE("Broken JSON is refused with its name and position", "[json]") {
  const auto broken = ParseJson(R"({"a": 1,})", "config.json");
  REQUIRE_FALSE(broken.ok());
  CHECK(std::string(broken.status().message()).find("config.json is not valid JSON at byte 9") ==
        0);
}

TEST_CASE("A number that no type holds is refused", "[json]") {
  const std::string text = R"({"a": 1)" + std::string(400, '0') + "}";
  CHECK(ParseJson(text, "config.json").status().message() ==
        "config.json has a number out of range");
}

TEST_CASE("A missing file is not found", "[json]") {
  CHECK(ReadJsonFile("/nonexistent/config.json").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Members are read with their type", "[json]") {
  const Json object = *ParseJson(R"({"s": "x", "i": 3, "f": 1.5, "b": true, "n": null})", "test");
  CHECK(*JsonString(object, "s") == "x");
  CHECK(*JsonInt(object, "i") == 3);
  CHECK(*JsonNumber(object, "i") == 3.0);
  CHECK(*JsonNumber(object, "f") == 1.5);
  CHECK(*JsonBool(object, "b"));
  CHECK_FALSE(JsonHas(object, "n"));
  CHECK(JsonInt(object, "n").status().message() == "n is missing");
  CHECK(JsonInt(object, "f").status().message() == "f is number, expected an integer");
  CHECK(JsonString(Json::array(), "s").status().message() == "s is missing");
}

TEST_CASE("Text that is no UTF-8 can still be written", "[json]") {
  CHECK(ToJsonText(Json{{"k", "a\xff"}}) == "{\"k\":\"a\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace lathe
