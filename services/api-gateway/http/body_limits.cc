#include "services/api-gateway/http/body_limits.h"

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

// Memory of the JSON parser for each byte of its text, and in all, because the number of values is
// bounded.
constexpr int64_t kJsonParserFactor = 14;
constexpr int64_t kMaxJsonParserBytes = 64 << 20;
constexpr char kProtobufType[] = "application/x-protobuf";

std::string NameOf(const Route& route) { return absl::StrCat(route.method, " ", route.pattern); }

}  // namespace

BodyLimits LimitsOf(const Route& route, const HttpLimits& limits, KeyState key) {
  const int64_t most =
      key == KeyState::kUnverified ? kMaxUnverifiedBodyBytes : std::numeric_limits<int64_t>::max();
  const int64_t inflated =
      route.max_inflated_bytes > 0 ? route.max_inflated_bytes : route.max_body_bytes;
  return {.sent_bytes = std::min({route.max_body_bytes, limits.max_body_bytes, most}),
          .inflated = {.max_bytes = std::min({inflated, limits.max_inflated_bytes, most}),
                       .free_bytes = route.free_inflated_bytes}};
}

absl::Status CheckDeclaredBody(const RequestParser& parser, const Route& route,
                               const BodyLimits& limits) {
  const uint64_t content_length = parser.content_length().value_or(0);
  if (!route.takes_body() && (content_length > 0 || parser.chunked())) {
    return WithDetail(absl::InvalidArgumentError(NameOf(route) + " takes no body"),
                      "body_not_allowed");
  }
  if (content_length <= static_cast<uint64_t>(limits.sent_bytes)) return absl::OkStatus();
  return BodyTooLarge(absl::StrFormat("request body of %d bytes", content_length), route, limits);
}

absl::Status BodyTooLarge(std::string_view body, const Route& route, const BodyLimits& limits) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("%s exceeds the limit of %d bytes for %s",
                                                 AbslView(body), limits.sent_bytes, NameOf(route))),
      "body_too_large");
}

bool IsIdentity(const Request& request) {
  const std::string_view encoding = request.HeaderValue("content-encoding");
  return encoding.empty() || absl::EqualsIgnoreCase(AbslView(encoding), "identity");
}

absl::Status CheckEncoding(const Request& request) {
  const std::string_view encoding = request.HeaderValue("content-encoding");
  if (IsIdentity(request) || absl::EqualsIgnoreCase(AbslView(encoding), "zstd")) {
    return absl::OkStatus();
  }
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "Content-Encoding is '%s', this server takes identity, zstd",
                        absl::CHexEscape(AbslView(encoding.substr(0, kMaxQuotedBytes))))),
                    "unsupported_encoding", "Content-Encoding");
}

absl::StatusOr<std::string> InflateBody(std::string_view body, const Route& route,
                                        const BodyLimits& limits, ReserveBytes reserve) {
  absl::StatusOr<std::string> inflated = InflateZstd(body, limits.inflated, reserve);
  if (ErrorCode(inflated.status()) != kInflatedTooLarge) return inflated;
  return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                        std::string(inflated.status().message()), " for ", NameOf(route))),
                    kInflatedTooLarge);
}

int64_t MemoryToHandle(const Request& request, const Route& route) {
  const auto num_bytes = static_cast<int64_t>(request.body.size());
  const absl::string_view type = AbslView(request.HeaderValue("content-type"));
  const bool is_protobuf = route.takes_protobuf && absl::StartsWithIgnoreCase(type, kProtobufType);
  const int64_t for_parser =
      is_protobuf ? 0 : std::min(num_bytes * kJsonParserFactor, kMaxJsonParserBytes);
  return num_bytes * kBodyCopies + for_parser;
}

}  // namespace lathe::gateway
