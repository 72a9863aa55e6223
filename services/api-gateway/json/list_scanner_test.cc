#include "services/api-gateway/json/list_scanner.h"

#include <catch2/catch.hpp>
#include <vector>

namespace lathe::gateway {
namespace {

struct Walked {
  bool is_found = false;
  bool is_sound = false;
  std::vector<std::string> elements;
  std::string rest;
};

Walked Walk(const std::string& text) {
  Walked walked;
  auto list = ListScanner::Find(text, {"a", "data"});
  walked.is_found = list.has_value();
  if (!list) return walked;
  while (const auto element = list->Next()) walked.elements.emplace_back(*element);
  walked.is_sound = list->is_sound();
  if (!walked.is_sound) return walked;
  walked.rest = list->Rest();
  CHECK(list->RestBytes() == walked.rest.size());
  return walked;
}

TEST_CASE("ListScanner: elements and rest, whatever stands in strings", "[json]") {
  const Walked walked = Walk(
      "{\"x\": [1, {\"data\": [9]}], \"a\" : {\"b\\\"\": \"]},\\\\\", \"data\": [ {\"k]\": "
      "\"}\\\"\"} ,"
      " [1,[2]] ,3,\"s,]\" ], \"z\": 1}, \"n\": null}");
  REQUIRE(walked.is_sound);
  CHECK(walked.elements ==
        std::vector<std::string>{"{\"k]\": \"}\\\"\"}", "[1,[2]]", "3", "\"s,]\""});
  CHECK(walked.rest ==
        "{\"x\": [1, {\"data\": [9]}], \"a\" : {\"b\\\"\": \"]},\\\\\", \"data\": [], \"z\": 1}, "
        "\"n\": "
        "null}");
}

TEST_CASE("ListScanner: an empty list", "[json]") {
  const Walked walked = Walk(R"({"a":{"data":[ ]}})");
  CHECK(walked.is_sound);
  CHECK(walked.elements.empty());
  CHECK(walked.rest == R"({"a":{"data":[]}})");
}

TEST_CASE("ListScanner: other shapes are not found", "[json]") {
  const auto text =
      GENERATE(as<std::string>(), "", "[]", "1", "{", "{}", "{\"a\"", "{\"a\":", "{\"a\":1}",
               "{\"a\":{}}", "{\"a\":{\"data\":{}}}", "{\"a\":{\"data\"",
               "{\"a\":{\"data\":", "{\"a\":{\"d\\u0061ta\":[]}}", "{\"b\":{]", "{\"b", "\"a\"",
               "{\"b\" 1,\"a\":{\"data\":[]}}", "{\"b\":,\"a\":{\"data\":[]}}");
  CHECK_FALSE(Walk(text).is_found);
}

TEST_CASE("ListScanner: broken lists are not sound", "[json]") {
  const auto list = GENERATE(as<std::string>(), "[", "[1", "[1,", "[1,,2]", "[,]", "[1 2]", "[1,]",
                             "[\"a]", "[{]", "[[]", "[1}", "[1:2]");
  const Walked walked = Walk("{\"a\":{\"data\":" + list);
  CHECK(walked.is_found);
  CHECK_FALSE(walked.is_sound);
}

TEST_CASE("ListScanner: a NUL byte ends the walk", "[json]") {
  CHECK_FALSE(Walk(std::string("{\"a\":{\"data\":[[1\0]]}}", 21)).is_sound);
}

}  // namespace
}  // namespace lathe::gateway
