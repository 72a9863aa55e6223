#include "services/api-gateway/http/message.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

constexpr int kNoContent = 204;

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

}  // namespace

std::string_view Request::HeaderValue(std::string_view name) const {
  for (const Header& header : headers) {
    if (absl::EqualsIgnoreCase(AbslView(header.name), AbslView(name))) return header.value;
  }
  return {};
}

std::optional<std::string_view> Request::QueryValue(std::string_view name) const {
  for (const QueryParameter& parameter : query) {
    if (parameter.name == name) return parameter.value;
  }
  return std::nullopt;
}

std::string ResponseHead(const Response& response, bool keep_alive) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ",
                                  AbslView(ReasonPhrase(response.status)), "\r\n");
  for (const Header& header : response.headers) {
    absl::StrAppend(&head, header.name, ": ", header.value, "\r\n");
  }
  if (response.status != kNoContent) {
    const int64_t num_bytes =
        response.stream ? response.stream->num_bytes : static_cast<int64_t>(response.body.size());
    if (!response.content_type.empty()) {
      absl::StrAppend(&head, "Content-Type: ", response.content_type, "\r\n");
    }
    absl::StrAppend(&head, "Content-Length: ", num_bytes, "\r\n");
  }
  absl::StrAppend(&head,
                  keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
  return head;
}

}  // namespace lathe::gateway
