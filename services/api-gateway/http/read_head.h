// Reads a request's head, with checks that Beast's parser does not make. Splits and decodes its
// target exactly once.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Returns the length of the head at the start of `bytes`, including its blank line and any empty
// lines before it. Returns nullopt while the head is incomplete.
std::optional<size_t> FindHead(std::string_view bytes);

// Feeds `head` to `parser`. Refuses more fields than the limit, folded lines, several Host headers,
// a Transfer-Encoding other than one `chunked`, Content-Length beside Transfer-Encoding, and an
// unknown HTTP version. Error words: malformed_http, headers_too_large.
absl::Status ParseHead(std::string_view head, const HttpLimits& limits, RequestParser& parser);

// Method, target and headers of a parsed head; the body stays in the parser.
struct RequestHead {
  Request request;
  std::vector<std::string> segments;
};
absl::StatusOr<RequestHead> ReadRequestHead(const RequestParser& parser);

struct Target {
  // Path without query, as sent.
  std::string path;
  // Decoded segments: "/a/b%20c" is {"a", "b c"}.
  std::vector<std::string> segments;
  std::vector<QueryParameter> query;
};

// Parses an absolute path of printable ASCII with an optional query. Returns InvalidArgument
// `bad_path` for any other target, and if a decoded segment is "." or "..", or contains '/', a
// control character or a non-ASCII character.
absl::StatusOr<Target> ParseTarget(std::string_view target);

}  // namespace lathe::gateway
