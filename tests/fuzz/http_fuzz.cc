// Fuzzes the HTTP front end: head, target, origin, route and body framing.
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/http/headers.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/read_head.h"
#include "services/api-gateway/http/router.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace lathe::gateway;  // NOLINT: a fuzz target is all about it

const Router& TestRouter() {
  static const Router router({{.method = "POST", .pattern = "/api/v1/asample"},
                              {.method = "GET", .pattern = "/api/v1/sessions/{session_id}"},
                              {.method = "DELETE", .pattern = "/a/{b}/c/{d}/{e}"}});
  return router;
}

void ReadBody(RequestParser& parser, std::string_view rest) {
  parser.eager(true);
  parser.body_limit(4096);
  boost::beast::error_code error;
  while (!parser.is_done() && !error && !rest.empty()) {
    const size_t used = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
    if (used == 0) return;
    rest.remove_prefix(used);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = lathe::fuzz::Text(data, size);
  const std::optional<size_t> head_bytes = FindHead(bytes);
  if (!head_bytes || *head_bytes > 8192) return 0;
  RequestParser parser;
  const absl::Status parsed =
      ParseHead(std::string_view(bytes).substr(0, *head_bytes), HttpLimits(), parser);
  if (!parsed.ok()) {
    lathe::fuzz::Expect(HttpStatus(parsed) >= 400 && HttpStatus(parsed) < 500,
                        "a bad head is the client's fault");
    return 0;
  }
  const absl::StatusOr<RequestHead> head = ReadRequestHead(parser);
  if (!head.ok()) return 0;
  for (const std::string& segment : head->segments) {
    lathe::fuzz::Expect(
        segment != ".." && segment.find('/') == segment.npos && segment.find('\0') == segment.npos,
        "no segment leaves its folder");
  }
  CheckOrigin(head->request).IgnoreError();
  const auto match = TestRouter().Find(head->request.method, head->request.path, head->segments);
  if (!match.ok()) ErrorResponse(match.status());
  // The gateway passes the parser no longer body of known length, because the parser would
  // reserve all of it.
  if (parser.content_length().value_or(0) <= static_cast<uint64_t>(kMaxSkippedBodyBytes)) {
    ReadBody(parser, std::string_view(bytes).substr(*head_bytes));
  }
  return 0;
}
