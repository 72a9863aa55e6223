#include "services/api-gateway/http/message.h"

#include <boost/beast/http/status.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

// Answers of these statuses have neither a body nor its length.
bool IsWithoutBody(int status) { return status == 204 || status == 304; }

std::string_view ReasonPhrase(int status) {
  namespace http = boost::beast::http;
  const auto phrase = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return {phrase.data(), phrase.size()};
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
  if (!IsWithoutBody(response.status)) {
    const int64_t num_bytes =
        response.stream ? response.stream->num_bytes : static_cast<int64_t>(response.body.size());
    if (!response.content_type.empty()) {
      absl::StrAppend(&head, "Content-Type: ", response.content_type, "\r\n");
    }
    if (!response.stream || !response.stream->is_endless) {
      absl::StrAppend(&head, "Content-Length: ", num_bytes, "\r\n");
    }
  }
  absl::StrAppend(&head,
                  keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
  return head;
}

}  // namespace lathe::gateway
