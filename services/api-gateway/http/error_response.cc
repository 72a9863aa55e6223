#include "services/api-gateway/http/error_response.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "libs/common/random/random_id.h"

namespace lathe::gateway {
namespace {

// In seconds. Ten tries of the SDK then span an engine restart of 20 s. A drain takes longer, 30 s
// by default with `lathe up`, and the restart comes after it.
constexpr char kRetryAfter[] = "2";
constexpr char kRetryAfterDrain[] = "5";

struct CodeStatus {
  std::string_view word;
  int status;
};
// Error words with a more specific HTTP status than that of their status code.
constexpr CodeStatus kCodeStatuses[] = {
    {"body_too_large", 413},         {"decompressed_too_large", 413},
    {"headers_too_large", 431},      {"unsupported_encoding", 415},
    {"unsupported_media_type", 415}, {"method_not_allowed", 405},
    {"downloads_not_served", 501},   {"disk_full", 507},
};

std::string_view Hint(const std::string& word) {
  if (word == "body_too_large") {
    return "send fewer datums per request; the SDK splits by fwdbwd_max_chunk_bytes_count";
  }
  if (word == "unauthenticated") return "set TINKER_API_KEY to a key of this server";
  return {};
}

}  // namespace

int HttpStatus(const absl::Status& status) {
  const std::string word = ErrorCode(status);
  for (const CodeStatus& entry : kCodeStatuses) {
    if (entry.word == word) return entry.status;
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kOutOfRange:
      return 410;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

Response ErrorResponse(const absl::Status& status) {
  Response response;
  response.status = HttpStatus(status);
  const std::string word = ErrorCode(status);
  const std::string field = ErrorField(status);
  const std::string message(status.message());
  nlohmann::json error = {{"code", word}, {"message", message}, {"param", nullptr}};
  if (!field.empty() && response.status != 405) error["param"] = field;
  if (const std::string_view hint = Hint(word); !hint.empty()) error["hint"] = hint;
  if (response.status == 401) {
    // On "invalid_token" the SDK gets a new token and repeats the request once.
    const bool is_token = word == "bad_token";
    response.headers.push_back(
        {"WWW-Authenticate", is_token ? "Bearer error=\"invalid_token\"" : "ApiKey"});
  }
  if (response.status == 405) response.headers.push_back({"Allow", field});
  if (response.status == 429 || response.status == 503 || response.status == 507) {
    const int64_t wait = absl::ToInt64Seconds(RetryAfter(status));
    const char* const unknown = word == "draining" ? kRetryAfterDrain : kRetryAfter;
    response.headers.push_back({"Retry-After", wait > 0 ? std::to_string(wait) : unknown});
    response.headers.push_back({"x-should-retry", "true"});
  }
  if (response.status >= 500) {
    const std::string request_id = RandomId(8);
    error["request_id"] = request_id;
    LogWarn("request failed", {{"request_id", request_id}, {"error", message}, {"code", word}});
  }
  const nlohmann::json body = {{"error", std::move(error)}, {"detail", message}};
  // Messages may quote bytes that are not UTF-8.
  response.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return response;
}

}  // namespace lathe::gateway
