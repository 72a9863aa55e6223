#include "services/engine/runtime/sample_streams.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

TEST_CASE("SampleStreams: a token goes to the streams of its request", "[runtime]") {
  SampleStreams streams;
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  std::vector<int32_t> other;
  streams.Add("r1", [&](const StreamedToken& token) { first.push_back(token.token); });
  streams.Add("r1", [&](const StreamedToken& token) { second.push_back(token.token); });
  streams.Add("r2", [&](const StreamedToken& token) { other.push_back(token.token); });
  streams.Push({{.request_id = "r1", .token = 5},
                {.request_id = "nobody's", .token = 6},
                {.request_id = "r1", .token = 7}});
  CHECK(first == std::vector<int32_t>{5, 7});
  CHECK(second == first);
  CHECK(other.empty());
}

TEST_CASE("SampleStreams: only the last stream's removal ends the interest", "[runtime]") {
  SampleStreams streams;
  const uint64_t first = streams.Add("r1", [](const StreamedToken&) {});
  const uint64_t second = streams.Add("r1", [](const StreamedToken&) {});
  CHECK(streams.IsWanted("r1"));
  CHECK_FALSE(streams.Remove("r1", first));
  CHECK_FALSE(streams.Remove("r1", first));
  CHECK(streams.IsWanted("r1"));
  CHECK(streams.Remove("r1", second));
  CHECK_FALSE(streams.IsWanted("r1"));
}

}  // namespace
}  // namespace lathe::engine
