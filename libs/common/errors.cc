#include "libs/common/errors.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"

namespace lathe {

namespace {

constexpr char kCodeUrl[] = "lathe/error-code";
constexpr char kFieldUrl[] = "lathe/error-field";
constexpr int kLastStatusCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

std::string Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Cord ToCord(std::string_view text) {
  return absl::Cord(absl::string_view(text.data(), text.size()));
}

}  // namespace

absl::Status WithDetail(absl::Status status, std::string_view code, std::string_view field) {
  if (!code.empty()) status.SetPayload(kCodeUrl, ToCord(code));
  if (!field.empty()) status.SetPayload(kFieldUrl, ToCord(field));
  return status;
}

std::string ErrorCode(const absl::Status& status) {
  if (status.ok()) return "";
  std::string code = Payload(status, kCodeUrl);
  return code.empty() ? StatusCodeName(status.code()) : code;
}

std::string ErrorField(const absl::Status& status) { return Payload(status, kFieldUrl); }

bool IsUserError(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

std::string StatusCodeName(absl::StatusCode code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

absl::StatusCode StatusCodeFromName(std::string_view word) {
  for (int code = 0; code <= kLastStatusCode; ++code) {
    if (StatusCodeName(static_cast<absl::StatusCode>(code)) == word) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  return absl::StatusCode::kUnknown;
}

namespace {

constexpr char kRetryAfterUrl[] = "lathe/retry-after";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration wait) {
  if (wait > absl::ZeroDuration()) {
    status.SetPayload(kRetryAfterUrl, absl::Cord(absl::FormatDuration(wait)));
  }
  return status;
}

absl::Duration RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterUrl);
  absl::Duration wait;
  if (!payload || !absl::ParseDuration(std::string(*payload), &wait)) return absl::ZeroDuration();
  return wait;
}

}  // namespace lathe
