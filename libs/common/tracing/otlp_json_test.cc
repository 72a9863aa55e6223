#include "libs/common/tracing/otlp_json.h"

#include <catch2/catch.hpp>

#include "libs/common/json/json.h"

namespace lathe {
namespace {

Json Encoded(const Span& span) {
  const std::string text = ToOtlpJson(
      {.service = "lathe-engine", .version = "1.2.3", .instance_id = "host:7"}, {span, span});
  const auto json = ParseJson(text, "spans");
  REQUIRE(json.ok());
  return json->at("resourceSpans").at(0);
}

TEST_CASE("A span is encoded as OTLP's JSON", "[tracing]") {
  const Json one =
      Encoded({.context = {.trace_id_high = 0xa,
                           .trace_id_low = 0xb,
                           .span_id = 0xc,
                           .parent_span_id = 0xd,
                           .is_sampled = true},
               .name = "forward_backward",
               .kind = SpanKind::kServer,
               .began_at = 1'700'000'000'000'000'001,
               .ended_at = 1'700'000'000'000'000'002,
               .has_failed = true,
               .attributes = {{"lathe.tenant_id", "t"}, {"lathe.seq_id", int64_t{7}}}});
  CHECK(one.at("resource").at("attributes").at(0).dump() ==
        R"({"key":"service.name","value":{"stringValue":"lathe-engine"}})");
  REQUIRE(one.at("scopeSpans").at(0).at("spans").size() == 2);
  const Json& span = one.at("scopeSpans").at(0).at("spans").at(1);
  CHECK(span.at("traceId") == "000000000000000a000000000000000b");
  CHECK(span.at("spanId") == "000000000000000c");
  CHECK(span.at("parentSpanId") == "000000000000000d");
  CHECK(span.at("name") == "forward_backward");
  CHECK(span.at("kind") == 2);
  CHECK(span.at("startTimeUnixNano") == "1700000000000000001");
  CHECK(span.at("endTimeUnixNano") == "1700000000000000002");
  CHECK(span.at("attributes").at(1).dump() == R"({"key":"lathe.seq_id","value":{"intValue":"7"}})");
  CHECK(span.at("status").at("code") == 2);
}

TEST_CASE("Text that is no JSON or no UTF-8 does not break the encoding", "[tracing]") {
  const std::string odd = std::string("\"\\\n\0", 4) + "\xff\xfe";
  const Json one = Encoded({.name = odd, .attributes = {{"lathe.base_model", odd}}});
  const Json& span = one.at("scopeSpans").at(0).at("spans").at(0);
  CHECK(span.at("name") == std::string("\"\\\n\0", 4) + "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(span.at("attributes").at(0).at("value").at("stringValue") == span.at("name"));
}

TEST_CASE("A root has no parent, success no status, and no span ends before it began",
          "[tracing]") {
  const Json one = Encoded({.began_at = 5, .ended_at = 3});
  const Json& span = one.at("scopeSpans").at(0).at("spans").at(0);
  CHECK_FALSE(span.contains("parentSpanId"));
  CHECK_FALSE(span.contains("status"));
  CHECK(span.at("endTimeUnixNano") == "5");
}

}  // namespace
}  // namespace lathe
