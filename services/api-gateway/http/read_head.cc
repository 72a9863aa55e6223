#include "services/api-gateway/http/read_head.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

absl::Status BadPath(std::string_view why) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat("bad path: %s", AbslView(why))),
                    "bad_path");
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool IsPrintable(char c) { return c > 0x20 && c < 0x7f; }

absl::StatusOr<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexValue(text[i + 1]) < 0 || HexValue(text[i + 2]) < 0) {
      return BadPath("a % is not followed by two hexadecimal digits");
    }
    decoded += static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2]));
    i += 2;
  }
  return decoded;
}

absl::StatusOr<std::string> DecodeSegment(std::string_view text) {
  ASSIGN_OR_RETURN(std::string segment, Decode(text, /*plus_is_space=*/false));
  if (segment == "." || segment == "..") return BadPath("'.' and '..' are not allowed");
  const bool is_clean = std::all_of(segment.begin(), segment.end(), [](char c) {
    return (IsPrintable(c) || c == ' ') && c != '/';
  });
  if (!is_clean) return BadPath("a segment has an encoded slash, control or non-ASCII character");
  return segment;
}

absl::Status ParseQuery(std::string_view text, std::vector<QueryParameter>& query) {
  for (absl::string_view pair : absl::StrSplit(AbslView(text), '&', absl::SkipEmpty())) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = StdView(pair.substr(0, equals));
    const std::string_view value = StdView(pair.substr(std::min(equals + 1, pair.size())));
    QueryParameter parameter;
    ASSIGN_OR_RETURN(parameter.name, Decode(name, /*plus_is_space=*/true));
    ASSIGN_OR_RETURN(parameter.value, Decode(value, /*plus_is_space=*/true));
    query.push_back(std::move(parameter));
  }
  return absl::OkStatus();
}

namespace beast = boost::beast;

absl::Status Malformed(std::string_view why) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("malformed HTTP: %s", AbslView(why))),
      "malformed_http");
}

bool HasFoldedLine(std::string_view head) {
  return head.find("\r\n ") != head.npos || head.find("\r\n\t") != head.npos;
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

absl::Status CheckFields(const RequestParser& parser, const HttpLimits& limits) {
  const auto& fields = parser.get();
  const auto num_fields = std::distance(fields.begin(), fields.end());
  if (num_fields > limits.max_header_fields) {
    return WithDetail(
        absl::InvalidArgumentError(absl::StrFormat("request has %d header fields, limit is %d",
                                                   num_fields, limits.max_header_fields)),
        "headers_too_large");
  }
  if (fields.count(beast::http::field::host) > 1) return Malformed("more than one Host");
  const auto encodings = fields.equal_range(beast::http::field::transfer_encoding);
  const auto num_encodings = std::distance(encodings.first, encodings.second);
  if (num_encodings > 1) return Malformed("more than one Transfer-Encoding");
  if (num_encodings == 1) {
    const std::string_view value = View(encodings.first->value());
    if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(AbslView(value)), "chunked")) {
      return Malformed("Transfer-Encoding must be chunked or absent");
    }
    if (fields.count(beast::http::field::content_length) > 0) {
      return Malformed("both Content-Length and Transfer-Encoding");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> ParseTarget(std::string_view target) {
  if (target.empty() || target[0] != '/') return BadPath("it does not begin with '/'");
  if (!std::all_of(target.begin(), target.end(), IsPrintable)) {
    return BadPath("it has a space, control or non-ASCII character");
  }
  const size_t question = std::min(target.find('?'), target.size());
  Target parsed;
  parsed.path = target.substr(0, question);
  for (absl::string_view segment : absl::StrSplit(AbslView(parsed.path).substr(1), '/')) {
    ASSIGN_OR_RETURN(std::string decoded, DecodeSegment(StdView(segment)));
    parsed.segments.push_back(std::move(decoded));
  }
  RETURN_IF_ERROR(ParseQuery(target.substr(std::min(question + 1, target.size())), parsed.query));
  return parsed;
}

std::optional<size_t> FindHead(std::string_view bytes) {
  const size_t begin = std::min(bytes.find_first_not_of("\r\n"), bytes.size());
  const size_t end = bytes.find("\r\n\r\n", begin);
  if (end == bytes.npos) return std::nullopt;
  return end + 4;
}

absl::Status ParseHead(std::string_view head, const HttpLimits& limits, RequestParser& parser) {
  head.remove_prefix(std::min(head.find_first_not_of("\r\n"), head.size()));
  if (HasFoldedLine(head)) return Malformed("a header is folded over two lines");
  parser.eager(false);
  parser.header_limit(static_cast<uint32_t>(limits.max_head_bytes));
  // The limit of the body is set once the route is known.
  parser.body_limit(boost::none);
  beast::error_code error;
  parser.put(boost::asio::buffer(head.data(), head.size()), error);
  if (error) return Malformed(error.message());
  if (!parser.is_header_done()) return Malformed("the headers do not end");
  if (parser.get().version() != 10 && parser.get().version() != 11) {
    return Malformed("the version must be HTTP/1.0 or HTTP/1.1");
  }
  return CheckFields(parser, limits);
}

absl::StatusOr<RequestHead> ReadRequestHead(const RequestParser& parser) {
  const auto& message = parser.get();
  ASSIGN_OR_RETURN(Target target, ParseTarget(View(message.target())));
  RequestHead head;
  head.request.method = message.method_string();
  head.request.path = std::move(target.path);
  head.request.query = std::move(target.query);
  head.segments = std::move(target.segments);
  for (const auto& field : message) {
    head.request.headers.push_back(
        {std::string(View(field.name_string())), std::string(View(field.value()))});
  }
  head.request.api_key = head.request.HeaderValue("x-api-key");
  return head;
}

}  // namespace lathe::gateway
