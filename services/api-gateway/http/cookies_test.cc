#include "services/api-gateway/http/cookies.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

Request RequestWithCookies(const std::vector<std::string>& values) {
  Request request;
  for (const std::string& value : values) request.headers.push_back({"Cookie", value});
  return request;
}

TEST_CASE("Cookies: one cookie is found by its whole name", "[http]") {
  const Request request = RequestWithCookies({"a=1; ab=2;abc = 3", "b=x=y; empty="});
  CHECK(CookieValue(request, "a") == "1");
  CHECK(CookieValue(request, "ab") == "2");
  CHECK(CookieValue(request, "b") == "x=y");
  CHECK(CookieValue(request, "empty") == "");
  CHECK_FALSE(CookieValue(request, "A"));
  CHECK_FALSE(CookieValue(request, "abc"));
  CHECK_FALSE(CookieValue(request, "c"));
  CHECK_FALSE(CookieValue(RequestWithCookies({"a", ";;", "=", ""}), "a"));
}

TEST_CASE("Cookies: of two cookies with one name neither counts", "[http]") {
  CHECK_FALSE(CookieValue(RequestWithCookies({"a=1; a=2"}), "a"));
  CHECK_FALSE(CookieValue(RequestWithCookies({"a=1", "a=1"}), "a"));
}

TEST_CASE("Cookies: a cookie is for this host, hidden from scripts and other sites", "[http]") {
  const Header secure = SetCookie({.name = "__Host-a", .value = "v", .max_age = absl::Hours(1)});
  CHECK(secure.name == "Set-Cookie");
  CHECK(secure.value == "__Host-a=v; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=Lax");
  CHECK(SetCookie({.name = "a", .value = "", .max_age = {}, .is_secure = false}).value ==
        "a=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
}

}  // namespace
}  // namespace lathe::gateway
