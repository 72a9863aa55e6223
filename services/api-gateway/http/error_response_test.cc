#include "services/api-gateway/http/error_response.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

std::string HeaderOf(const Response& response, const std::string& name) {
  for (const Header& header : response.headers) {
    if (header.name == name) return header.value;
  }
  return "";
}

TEST_CASE("Every status code has its HTTP status, and none is 409", "[http]") {
  using Code = absl::StatusCode;
  const auto [code, http] = GENERATE(table<Code, int>({{Code::kInvalidArgument, 400},
                                                       {Code::kFailedPrecondition, 400},
                                                       {Code::kAlreadyExists, 400},
                                                       {Code::kUnimplemented, 400},
                                                       {Code::kUnauthenticated, 401},
                                                       {Code::kPermissionDenied, 403},
                                                       {Code::kNotFound, 404},
                                                       {Code::kOutOfRange, 410},
                                                       {Code::kResourceExhausted, 429},
                                                       {Code::kUnavailable, 503},
                                                       {Code::kDeadlineExceeded, 504},
                                                       {Code::kAborted, 500},
                                                       {Code::kInternal, 500}}));
  CHECK(ErrorResponse(absl::Status(code, "x")).status == http);
}

TEST_CASE("An error body names code, message and field, and repeats the message", "[http]") {
  const Response response = ErrorResponse(WithDetail(
      absl::InvalidArgumentError("rank is 0, allowed are 1 to 512"), "bad_lora", "rank"));
  const auto body = nlohmann::json::parse(response.body);
  CHECK(response.status == 400);
  CHECK(body["error"]["code"] == "bad_lora");
  CHECK(body["error"]["param"] == "rank");
  CHECK(body["error"]["message"] == "rank is 0, allowed are 1 to 512");
  CHECK(body["detail"] == "rank is 0, allowed are 1 to 512");
  CHECK_FALSE(body["error"].contains("request_id"));
}

TEST_CASE("Words of the edge have statuses of their own", "[http]") {
  const auto [word, http] = GENERATE(table<std::string, int>({{"body_too_large", 413},
                                                              {"decompressed_too_large", 413},
                                                              {"headers_too_large", 431},
                                                              {"unsupported_encoding", 415},
                                                              {"unsupported_media_type", 415},
                                                              {"method_not_allowed", 405},
                                                              {"bad_json", 400}}));
  CHECK(ErrorResponse(WithDetail(absl::InvalidArgumentError("x"), word)).status == http);
}

TEST_CASE("A full disk has a status line of its own", "[http]") {
  const Response full = ErrorResponse(WithDetail(absl::ResourceExhaustedError("x"), "disk_full"));
  CHECK(ResponseHead(full, /*keep_alive=*/true).rfind("HTTP/1.1 507 Insufficient Storage", 0) == 0);
}

TEST_CASE("Statuses that need a header have it", "[http]") {
  CHECK(HeaderOf(ErrorResponse(absl::UnauthenticatedError("x")), "WWW-Authenticate") != "");
  CHECK(HeaderOf(ErrorResponse(absl::ResourceExhaustedError("x")), "Retry-After") != "");
  CHECK(HeaderOf(ErrorResponse(absl::UnavailableError("x")), "Retry-After") != "");
  const absl::Status drains = WithDetail(absl::UnavailableError("x"), "draining");
  CHECK(HeaderOf(ErrorResponse(drains), "Retry-After") == "5");
  const absl::Status limited = WithRetryAfter(absl::ResourceExhaustedError("x"), absl::Seconds(37));
  CHECK(HeaderOf(ErrorResponse(limited), "Retry-After") == "37");
  CHECK(HeaderOf(ErrorResponse(absl::ResourceExhaustedError("x")), "x-should-retry") == "true");
  CHECK(HeaderOf(ErrorResponse(absl::UnauthenticatedError("x")), "WWW-Authenticate") == "ApiKey");
  CHECK(HeaderOf(ErrorResponse(WithDetail(absl::UnauthenticatedError("x"), "bad_token")),
                 "WWW-Authenticate") == "Bearer error=\"invalid_token\"");
  const auto not_allowed = WithDetail(absl::InvalidArgumentError("x"), "method_not_allowed", "GET");
  CHECK(HeaderOf(ErrorResponse(not_allowed), "Allow") == "GET");
}

TEST_CASE("A server error can be found in the log by its request_id", "[http]") {
  const auto body = nlohmann::json::parse(ErrorResponse(absl::InternalError("x")).body);
  CHECK(body["error"]["request_id"].get<std::string>().size() == 16);
}

}  // namespace
}  // namespace lathe::gateway
