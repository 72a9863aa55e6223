// Checks of a request's head that Beast's parser leaves to us.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/path.h"

namespace lathe::gateway {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// The length of the head at the front of `bytes`, blank line included; unset while it is not whole.
// Empty lines before it count as part of it.
std::optional<size_t> FindHead(std::string_view bytes);

// Feeds `head` to `parser` and refuses what must not pass: more fields than the limit, folded
// lines, a Transfer-Encoding other than chunked, Content-Length beside it, an unknown HTTP version.
//   malformed_http, headers_too_large
absl::Status ParseHead(std::string_view head, const HttpLimits& limits, RequestParser& parser);

// Method, target and headers of a parsed head; the body stays in the parser.
struct RequestHead {
  Request request;
  std::vector<std::string> segments;
};
absl::StatusOr<RequestHead> ReadRequestHead(const RequestParser& parser);

}  // namespace lathe::gateway
