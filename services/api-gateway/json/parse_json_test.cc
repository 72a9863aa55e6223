#include "services/api-gateway/json/parse_json.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

std::string Word(const std::string& text) { return ErrorCode(CheckJson(text)); }
std::string Message(const std::string& text) { return std::string(CheckJson(text).message()); }

TEST_CASE("Sound JSON passes", "[json]") {
  CHECK(CheckJson(R"({"a":[1,-2,0.5,"x",true,null],"b":{"a":18446744073709551615}})").ok());
}

TEST_CASE("What is no JSON is refused with line, column and byte", "[json]") {
  CHECK(Message("{\"a\": 1,\n  oops}") == "body is not JSON: line 2, column 3 (byte 11)");
  const auto text = GENERATE(as<std::string>(), "", "{", "{} x", "{\"a\":\"\xff\"}", "[1,]",
                             "{'a':1}", "{\"a\":nan}");
  CHECK(Word(text) == "bad_json");
}

TEST_CASE("Nesting is bounded", "[json]") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(CheckJson(nested(64)).ok());
  CHECK(Word(nested(65)) == "too_deep");
  CHECK(Word(std::string(5'000'000, '[')) == "too_deep");
}

TEST_CASE("A key given twice is refused with its place", "[json]") {
  CHECK(Word(R"({"a":{"b":1,"c":[{"d":1,"d":2}]}})") == "duplicate_key");
  CHECK(Message(R"({"a":{"b":1,"c":[0,{"d":1,"d":2}]}})") == "key given twice at /a/c/1/d");
  CHECK(CheckJson(R"([{"a":1},{"a":1}])").ok());
}

TEST_CASE("Values are counted outside strings, at any depth", "[json]") {
  const auto word = [](const std::string& text) { return ErrorCode(CheckJsonSize(text)); };
  const auto repeat = [](const std::string& text, size_t count) {
    std::string repeated;
    for (size_t i = 0; i < count; ++i) repeated += text;
    return repeated;
  };
  CHECK(word("[" + repeat("{},", kMaxJsonValues / 2 - 1) + "1]").empty());
  CHECK(word("[" + repeat("{},", kMaxJsonValues) + "1]") == "too_many_values");
  CHECK(word("{" + repeat("\"a\":1,", kMaxJsonValues)) == "too_many_values");
  CHECK(word("[\"" + repeat(",", kMaxJsonValues + 10) + "\\\",\"]").empty());
  CHECK(word("[\"" + repeat(",", kMaxJsonValues + 10)).empty());
  CHECK(word(std::string(64, '[')).empty());
  CHECK(word(std::string(65, '[')) == "too_deep");
  CHECK(ErrorCode(CheckJsonSize(std::string(62, '['), /*outer_depth=*/3)) == "too_deep");
  CHECK(word(repeat("[]", 1000)).empty());
}

TEST_CASE("Numbers that no double or 64-bit integer holds are refused", "[json]") {
  CHECK(Word(R"({"a":1e999})") == "bad_number");
  CHECK(Message(R"({"a":[1,18446744073709551616]})") == "integer beyond 64 bits at /a/1");
  CHECK(Word(R"({"a":-Infinity})") == "bad_number");
  CHECK(Message(R"({"a":NaN})") == "NaN is not a JSON number: line 1, column 6 (byte 5)");
}

}  // namespace
}  // namespace lathe::gateway
