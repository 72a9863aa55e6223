// Rules for a request's body that follow from its route, its key and its head.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/read_head.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/http/zstd.h"

namespace lathe::gateway {

struct BodyLimits {
  // Most bytes as sent.
  int64_t sent_bytes = 0;
  InflateLimits inflated;
};
BodyLimits LimitsOf(const Route& route, const HttpLimits& limits, KeyState key);

// Checks the framing and the size that the head declares. Errors are InvalidArgument
// `body_not_allowed`, if the route takes no body, and `body_too_large`.
absl::Status CheckDeclaredBody(const RequestParser& parser, const Route& route,
                               const BodyLimits& limits);
absl::Status BodyTooLarge(std::string_view body, const Route& route, const BodyLimits& limits);

// True if the body was sent as it is. Else CheckEncoding returns InvalidArgument
// `unsupported_encoding`, unless the encoding is zstd.
bool IsIdentity(const Request& request);
absl::Status CheckEncoding(const Request& request);

// Decompresses the body. Errors are those of InflateZstd, and name the route if the body is too
// large.
absl::StatusOr<std::string> InflateBody(std::string_view body, const Route& route,
                                        const BodyLimits& limits, ReserveBytes reserve);

// Returns the memory that a handler may need for its body, once the body is complete. Handlers of
// protobuf add what its parts take.
int64_t MemoryToHandle(const Request& request, const Route& route);

}  // namespace lathe::gateway
