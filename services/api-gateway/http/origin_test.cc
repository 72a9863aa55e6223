#include "services/api-gateway/http/origin.h"

#include <catch2/catch.hpp>

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
}  // namespace lathe::gateway
