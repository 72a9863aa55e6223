#include "libs/common/tracing/span_context.h"

#include <catch2/catch.hpp>
#include <set>

#include "libs/common/tracing/tracer.h"

namespace lathe {
namespace {

constexpr char kValid[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST_CASE("A traceparent is read and written", "[tracing]") {
  const auto context = ParseTraceparent(kValid);
  REQUIRE(context);
  CHECK(context->trace_id_high == 0x0af7651916cd43dd);
  CHECK(context->trace_id_low == 0x8448eb211c80319c);
  CHECK(context->span_id == 0xb7ad6b7169203331);
  CHECK(context->is_sampled);
  CHECK(FormatTraceparent(*context) == kValid);
  // Only the lowest flag has a meaning, and a later version may append fields.
  CHECK_FALSE(
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe")->is_sampled);
  CHECK(ParseTraceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
}

TEST_CASE("A malformed traceparent is no context", "[tracing]") {
  const std::string text = GENERATE(
      as<std::string>(), "", "00", "garbage",
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",          // no flags
      "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",       // upper case
      "00-00000000000000000000000000000000-b7ad6b7169203331-01",       // zero trace
      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",       // zero span
      "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",       // forbidden version
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",  // version 00 ends there
      "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",   // no separator
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",       // no digit
      "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",       // other separators
      std::string("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-") +
          std::string(1000, 'a'),  // too long
      std::string("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033\0001-01", 55));
  CHECK_FALSE(ParseTraceparent(text));
}

TEST_CASE("A child has its parent's trace, and ids are new", "[tracing]") {
  const SpanContext root = NewTrace();
  CHECK(root.parent_span_id == 0);
  std::set<uint64_t> ids = {root.span_id};
  for (int i = 0; i < 1000; ++i) {
    const SpanContext child = ChildOf(root);
    CHECK(child.trace_id_high == root.trace_id_high);
    CHECK(child.trace_id_low == root.trace_id_low);
    CHECK(child.parent_span_id == root.span_id);
    ids.insert(child.span_id);
  }
  CHECK(ids.size() == 1001);
}

TEST_CASE("The ratio is the share of traces, also of those whose ids a client picked",
          "[tracing]") {
  CHECK(IsInSample({.trace_id_low = UINT64_MAX}, 1));
  CHECK_FALSE(IsInSample({.trace_id_low = 0}, 0));
  int num_new = 0;
  int num_low = 0;
  int num_high = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    num_new += IsInSample(NewTrace(), 0.25);
    const SpanContext low = {.trace_id_low = i + 1};
    num_low += IsInSample(low, 0.25);
    CHECK(IsInSample(low, 0.25) == IsInSample(ChildOf(low), 0.25));
    num_high += IsInSample({.trace_id_high = i + 1}, 0.25);
  }
  for (const int num_in : {num_new, num_low, num_high}) {
    CHECK(num_in > 2000);
    CHECK(num_in < 3000);
  }
}

TEST_CASE("A sender can turn the recording of its trace off, and not the ratio up", "[tracing]") {
  const Tracer all({.url = "http://127.0.0.1:1"}, 1);
  const Tracer none({.url = "http://127.0.0.1:1"}, 0);
  const std::string off = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
  CHECK(all.Begin(kValid).is_sampled);
  CHECK(all.Begin(kValid).parent_span_id == 0xb7ad6b7169203331);
  CHECK_FALSE(all.Begin(off).is_sampled);
  CHECK(all.Begin("garbage").is_sampled);
  CHECK(all.Begin("garbage").parent_span_id == 0);
  CHECK_FALSE(none.Begin(kValid).is_sampled);
  CHECK_FALSE(none.Begin("").is_sampled);
}

}  // namespace
}  // namespace lathe
