#include "services/api-gateway/http/headers.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "libs/common/errors.h"

namespace lathe::gateway {

namespace {

absl::Status Check(const std::string& origin, const std::string& host) {
  Request request;
  request.headers = {{"Host", host}, {"Origin", origin}};
  return CheckOrigin(request);
}

TEST_CASE("A program, and a page of the server itself, may make requests", "[http]") {
  CHECK(CheckOrigin(Request()).ok());
  CHECK(Check("http://localhost:8080", "localhost:8080").ok());
  CHECK(Check("https://Lathe.example", "lathe.example").ok());
}

TEST_CASE("A page of another origin may not", "[http]") {
  const auto origin =
      GENERATE(as<std::string>(), "http://evil.example", "null", "http://", "http://localhost:8081",
               "http://localhost", "localhost:8080", "http://localhost:8080.evil.example");
  const absl::Status status = Check(origin, "localhost:8080");
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(ErrorCode(status) == "bad_origin");
  CHECK_FALSE(Check(origin, "").ok());
}

}  // namespace

namespace {

TEST_CASE("Range: one range of bytes, clipped to the size of the file", "[http]") {
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

TEST_CASE("Range: a malformed or unsupported range asks for the whole file", "[http]") {
  const auto text = GENERATE(as<std::string>(), "", "bytes", "bytes=", "bytes=-", "bytes=5-4",
                             "bytes=a-b", "bytes=0-1,5-6", "bytes=+1-2", "bytes= 1-2", "items=0-1",
                             "bytes=99999999999999999999-", "bytes=0-99999999999999999999");
  CHECK_FALSE(ParseByteRange(text, 100).has_value());
}

}  // namespace

}  // namespace lathe::gateway
