#include "services/api-gateway/json/unknown_field.h"

#include <catch2/catch.hpp>

#include "services/api-gateway/json/large_reader.h"

namespace lathe::gateway {
namespace {

TEST_CASE("A number that was asked for is known", "[json]") {
  simdjson::dom::parser parser;
  const auto element = ParseLargeJson(parser, R"({"temperature": 0.5})");
  REQUIRE(element.ok());
  LargeContext errors;
  {
    LargeObject reader(*element, "/of_a_large_number", errors);
    CHECK(reader.NumberOf("temperature", *reader.Find("temperature")) == 0.5);
  }
  // The reader has not logged it.
  CHECK(RecordUnknownField("/of_a_large_number", "temperature", {}));
}

TEST_CASE("A field is unknown once, at whatever place in a list", "[json]") {
  CHECK(RecordUnknownField("/data/0/tensor", "dtpye", {"dtype"}));
  CHECK_FALSE(RecordUnknownField("/data/17/tensor", "dtpye", {"dtype"}));
  CHECK(RecordUnknownField("/data/17/other", "dtpye", {}));
  CHECK(RecordUnknownField("", "dtpye", {}));
  CHECK_FALSE(RecordUnknownField("", "type", {}));
}

TEST_CASE("Invented names do not fill the log or memory", "[json]") {
  int num_logged = 0;
  for (int i = 0; i < 2000; ++i) num_logged += RecordUnknownField("", "x" + std::to_string(i), {});
  CHECK(num_logged > 100);
  CHECK(num_logged <= 500);
}

}  // namespace
}  // namespace lathe::gateway
