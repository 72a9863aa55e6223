#include "services/api-gateway/http/notices.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

// Returns "note|level" for a request from an SDK of `version`, or "" if it gets no notice. An empty
// `version` sends no version header.
std::string NoticesFor(const NoticeOptions& options, const std::string& version) {
  Request request;
  if (!version.empty()) request.headers = {{"X-Stainless-Package-Version", version}};
  Response response;
  Notices(options).AddTo(request, response);
  std::string notices;
  for (const Header& header : response.headers)
    notices += (notices.empty() ? "" : "|") + header.value;
  return notices;
}

TEST_CASE("Notices: SDKs below the oldest supported one get an error notice", "[http]") {
  const std::string notices =
      "tinker 0.24.9 is older than 0.25.0, the oldest that this server supports: upgrade it|error";
  CHECK(NoticesFor({}, "0.24.9") == notices);
  for (const char* version : {"", "0.25.0", "0.38.0", "1.0", "0.25.0rc1", "new", "0.x", "-1.2"}) {
    INFO(version);
    CHECK(NoticesFor({}, version).empty());
  }
  CHECK(NoticesFor({.min_sdk_version = ""}, "0.1.0").empty());
}

TEST_CASE("Notices: the operator's text goes to everyone, at its level", "[http]") {
  CHECK(NoticesFor({.notice = "down at 6 pm"}, "0.38.0") == "down at 6 pm");
  CHECK(NoticesFor({.notice = "down at 6 pm", .notice_level = "error"}, "") ==
        "down at 6 pm|error");
  CHECK(NoticesFor({.notice = "hello"}, "0.20.1").find("hello | tinker 0.20.1 is older") == 0);
}

TEST_CASE("Notices: a text that cannot be a header is refused", "[http]") {
  CHECK(CheckNotices({}).ok());
  for (const NoticeOptions& options :
       {NoticeOptions{.notice = "a\r\nset-cookie: b"}, NoticeOptions{.notice = "\xc3\xa4"},
        NoticeOptions{.notice = std::string(1025, 'a')}, NoticeOptions{.notice_level = "loud"},
        NoticeOptions{.min_sdk_version = "latest"}}) {
    CHECK(absl::IsInvalidArgument(CheckNotices(options)));
  }
}

}  // namespace
}  // namespace lathe::gateway
