#include "services/api-gateway/auth/oidc/login_state.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

const absl::Time kBegan = absl::FromUnixSeconds(1'700'000'000);
const SealKey kOld = {.key_id = 1, .bytes = std::string(32, 'a')};
const SealKey kNew = {.key_id = 2, .bytes = std::string(32, 'b')};

TEST_CASE("Login state: what one gateway seals another opens, until its time is over", "[oidc]") {
  const LoginState login = MakeLoginState("/ui/runs?q=x", kBegan);
  CHECK(login.state != MakeLoginState("", kBegan).state);
  CHECK(login.state.size() == 43);
  CHECK(login.nonce != login.state);
  CHECK(login.verifier != login.nonce);
  const std::string sealed = SealLogin(login, kOld);
  CHECK(sealed.find(login.state) == std::string::npos);
  CHECK(sealed != SealLogin(login, kOld));
  const auto opened = OpenLogin(sealed, {kNew, kOld}, kBegan + kLoginLifetime);
  INFO(opened.status());
  REQUIRE(opened.ok());
  CHECK(opened->state == login.state);
  CHECK(opened->nonce == login.nonce);
  CHECK(opened->verifier == login.verifier);
  CHECK(opened->next == "/ui/runs?q=x");
  CHECK(absl::IsDeadlineExceeded(
      OpenLogin(sealed, {kOld}, kBegan + kLoginLifetime + absl::Seconds(1)).status()));
}

TEST_CASE("Login state: a changed cookie, or one of another key, is unknown", "[oidc]") {
  const std::string sealed = SealLogin(MakeLoginState("/ui", kBegan), kOld);
  CHECK(absl::IsInvalidArgument(OpenLogin(sealed, {kNew}, kBegan).status()));
  for (size_t i = 0; i < sealed.size(); i += 7) {
    std::string changed = sealed;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    CHECK_FALSE(OpenLogin(changed, {kOld}, kBegan).ok());
  }
  for (const std::string& text :
       {std::string(), std::string("!"), sealed.substr(0, 40), sealed.substr(1), sealed + "AAAA"}) {
    CHECK(absl::IsInvalidArgument(OpenLogin(text, {kOld}, kBegan).status()));
  }
}

TEST_CASE("Login state: the challenge is that of RFC 7636, appendix B", "[oidc]") {
  CHECK(CodeChallenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") ==
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

TEST_CASE("Login state: a browser is led to a page of the dashboard and nowhere else", "[oidc]") {
  for (const char* const good :
       {"/ui", "/ui/", "/ui/runs", "/ui/runs/a-b_c.d~e", "/ui?q=1", "/ui/compare?runs=a,b&x=%2F"}) {
    INFO(good);
    CHECK(SafeNext(good) == good);
  }
  for (const std::string& bad : {std::string(),
                                 std::string("/"),
                                 std::string("//evil.example"),
                                 std::string("/\\evil.example"),
                                 std::string("\\\\evil"),
                                 std::string("https:evil"),
                                 std::string("https://evil.example/ui"),
                                 std::string("javascript:alert(1)"),
                                 std::string("/ui/../..//evil"),
                                 std::string("/ui/.."),
                                 std::string("/ui//evil.example"),
                                 std::string("%2f%2fevil"),
                                 std::string("/ui/%2f%2fevil"),
                                 std::string("/ui/a%0d%0aSet-Cookie:x"),
                                 std::string("/ui\r\nLocation: x"),
                                 std::string("/ui?a\r\nb"),
                                 std::string("/ui?a b"),
                                 std::string("/ui?<script>"),
                                 std::string("/ui#x"),
                                 std::string("/ui?x#y"),
                                 std::string("/uix"),
                                 std::string("/ui.evil.example"),
                                 std::string("ui/runs"),
                                 std::string(" /ui"),
                                 std::string("/api/v1/runs"),
                                 std::string("/ui/login"),
                                 std::string("/ui/auth/login"),
                                 std::string("/ui/\xc3\xa9"),
                                 "/ui/" + std::string(4096, 'a')}) {
    INFO(bad);
    CHECK(SafeNext(bad) == "/ui");
  }
}

}  // namespace
}  // namespace lathe::gateway
