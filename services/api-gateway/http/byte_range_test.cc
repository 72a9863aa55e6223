#include "services/api-gateway/http/byte_range.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

namespace lathe::gateway {
namespace {

TEST_CASE("Range: one range of bytes, clipped to what there is", "[http]") {
  const auto [text, begin, end] = GENERATE(table<std::string, int64_t, int64_t>({
      {"bytes=0-0", 0, 1},
      {"bytes=0-", 0, 100},
      {"bytes=10-19", 10, 20},
      {"bytes=90-1000", 90, 100},
      {"bytes=-1", 99, 100},
      {"bytes=-1000", 0, 100},
      {"bytes=100-", 100, 100},
      {"bytes=-0", 100, 100},
  }));
  const auto range = ParseByteRange(text, 100);
  REQUIRE(range.has_value());
  CHECK(range->begin == begin);
  CHECK(range->end == end);
}

TEST_CASE("Range: what is malformed or not offered asks for the whole", "[http]") {
  const auto text = GENERATE(as<std::string>(), "", "bytes", "bytes=", "bytes=-", "bytes=5-4",
                             "bytes=a-b", "bytes=0-1,5-6", "bytes=+1-2", "bytes= 1-2", "items=0-1",
                             "bytes=99999999999999999999-", "bytes=0-99999999999999999999");
  CHECK_FALSE(ParseByteRange(text, 100).has_value());
}

}  // namespace
}  // namespace lathe::gateway
