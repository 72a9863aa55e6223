#include "services/api-gateway/auth/session_cookies.h"

#include <catch2/catch.hpp>

#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

Request RequestTo(const std::string& host, const std::string& cookie = "", bool is_tls = false) {
  Request request;
  request.headers = {{"Host", host}, {"Cookie", cookie}};
  request.is_tls = is_tls;
  return request;
}

std::string NameSet(const SessionCookies& cookies, const Request& request) {
  const std::string value = cookies.SetSession(request, "s", absl::Hours(1)).value;
  return value.substr(0, value.find('='));
}

TEST_CASE("Session cookies: the name has __Host- with TLS, and the port without", "[auth]") {
  const SessionCookies cookies("");
  CHECK(NameSet(cookies, RequestTo("lathe.example", "", true)) == "__Host-lathe_session");
  CHECK(NameSet(cookies, RequestTo("127.0.0.1:8080")) == "lathe_session_8080");
  CHECK(NameSet(cookies, RequestTo("[::1]:8080")) == "lathe_session_8080");
  CHECK(NameSet(cookies, RequestTo("localhost")) == "lathe_session");
  CHECK(NameSet(cookies, RequestTo("[::1]")) == "lathe_session");
  // A proxy ends TLS, and the configured address says so.
  const SessionCookies behind_proxy("https://lathe.example");
  CHECK(NameSet(behind_proxy, RequestTo("lathe.example")) == "__Host-lathe_session");
}

TEST_CASE("Session cookies: only what may be a session is read", "[auth]") {
  const SessionCookies cookies("");
  const std::string session = MakeUserSession();
  const std::string host = "127.0.0.1:8080";
  CHECK(cookies.FindSession(RequestTo(host, "lathe_session_8080=" + session)) == session);
  CHECK(cookies.FindSession(RequestTo(host, "lathe_session_8081=" + session)).empty());
  CHECK(cookies.FindSession(RequestTo(host, "__Host-lathe_session=" + session)).empty());
  CHECK(cookies.FindSession(RequestTo(host, "lathe_session_8080=" + session, true)).empty());
  CHECK(cookies.FindSession(RequestTo(host, "lathe_session_8080=tml-key")).empty());
  CHECK(cookies.FindSession(RequestTo(host)).empty());
  CHECK(cookies.ClearSession(RequestTo(host)).value ==
        "lathe_session_8080=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
}

TEST_CASE("Session cookies: a change needs the token of its own session", "[auth]") {
  const std::string session = MakeUserSession();
  Request request = RequestTo("127.0.0.1:8080");
  CHECK(ErrorCode(CheckCsrf(request, session)) == "bad_csrf");
  request.headers.push_back({"x-lathe-csrf", CsrfToken(MakeUserSession())});
  CHECK(ErrorCode(CheckCsrf(request, session)) == "bad_csrf");
  request.headers.back().value = CsrfToken(session);
  CHECK(CheckCsrf(request, session).ok());
  request.headers.push_back({"Sec-Fetch-Site", "same-origin"});
  CHECK(CheckCsrf(request, session).ok());
  for (const char* const site : {"cross-site", "same-site", "SAME-ORIGIN", "x"}) {
    request.headers.back().value = site;
    CHECK(ErrorCode(CheckCsrf(request, session)) == "bad_origin");
  }
}

}  // namespace
}  // namespace lathe::gateway
