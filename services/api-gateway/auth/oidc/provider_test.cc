#include "services/api-gateway/auth/oidc/provider.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>

#include "libs/common/errors.h"
#include "services/api-gateway/auth/oidc/testing/test_signer.h"

namespace lathe::gateway {
namespace {

constexpr char kIssuer[] = "https://id.example";
constexpr char kBack[] = "https://lathe.example/ui/auth/callback";

// A provider in memory, and a client of it.
struct ProviderWorld {
  FakeClock clock;
  std::unique_ptr<TestSigner> signer = std::make_unique<TestSigner>("ES256");
  Json metadata = {{"issuer", kIssuer},
                   {"authorization_endpoint", "https://id.example/authorize?tenant=1"},
                   {"token_endpoint", "https://tokens.example/token"},
                   {"jwks_uri", "https://id.example/keys"},
                   {"userinfo_endpoint", "https://id.example/userinfo"},
                   {"end_session_endpoint", "https://id.example/end"}};
  Json userinfo = {{"sub", "ada"}, {"email", "ada@lab.example"}, {"email_verified", true}};
  LoginState login = MakeLoginState("/ui", clock.Now());
  Json claims = {{"iss", kIssuer},
                 {"aud", "lathe"},
                 {"sub", "ada"},
                 {"nonce", login.nonce},
                 {"exp", absl::ToUnixSeconds(clock.Now()) + 300},
                 {"iat", absl::ToUnixSeconds(clock.Now())}};
  std::map<std::string, int> num_calls;
  HttpCallRequest token_request;
  bool is_away = false;

  OidcOptions options = {.issuer = kIssuer, .client_id = "lathe", .client_secret = "s:e"};
  OidcProvider provider{options, clock,
                        [this](const HttpCallRequest& request) { return Answer(request); }};

  absl::StatusOr<HttpAnswer> Answer(const HttpCallRequest& request) {
    ++num_calls[request.url];
    CHECK(request.refuses_local);
    if (is_away) return absl::UnavailableError("away");
    const auto json = [](const Json& body) { return HttpAnswer{200, body.dump()}; };
    if (request.url.ends_with("/.well-known/openid-configuration")) return json(metadata);
    if (request.url.ends_with("/keys")) return HttpAnswer{200, signer->KeySet()};
    if (request.url.ends_with("/userinfo")) return json(userinfo);
    if (!request.url.ends_with("/token")) return HttpAnswer{404, ""};
    token_request = request;
    return json({{"id_token", signer->Sign(claims)}, {"access_token", "access"}});
  }
  absl::StatusOr<Json> Redeem(const std::string& issuer = "") {
    return provider.Redeem("the code", issuer, login, kBack);
  }
};

TEST_CASE("Provider: a browser goes to it with a challenge, a state and a nonce", "[oidc]") {
  ProviderWorld w;
  const absl::StatusOr<std::string> url = w.provider.AuthorizationUrl(w.login, kBack);
  REQUIRE(url.ok());
  CHECK(*url ==
        "https://id.example/authorize?tenant=1&response_type=code&client_id=lathe"
        "&redirect_uri=https%3A%2F%2Flathe.example%2Fui%2Fauth%2Fcallback"
        "&scope=openid%20profile%20email&state=" +
            w.login.state + "&nonce=" + w.login.nonce +
            "&code_challenge=" + CodeChallenge(w.login.verifier) + "&code_challenge_method=S256");
}

TEST_CASE("Provider: a code becomes claims, and userinfo has what the token lacks", "[oidc]") {
  ProviderWorld w;
  const absl::StatusOr<Json> claims = w.Redeem(kIssuer);
  INFO(claims.status());
  REQUIRE(claims.ok());
  CHECK((*claims)["email"] == "ada@lab.example");
  CHECK((*claims)["email_verified"] == true);
  CHECK(w.token_request.body ==
        "grant_type=authorization_code&code=the%20code&redirect_uri="
        "https%3A%2F%2Flathe.example%2Fui%2Fauth%2Fcallback"
        "&code_verifier=" +
            w.login.verifier);
  CHECK(w.token_request.headers.back() ==
        "Authorization: Basic " + absl::Base64Escape("lathe:s%3Ae"));
  // A token that has the claim makes no call, and its own address is not made a verified one.
  w.claims["email"] = "eve@evil.example";
  CHECK_FALSE(w.Redeem()->contains("email_verified"));
  CHECK(w.num_calls["https://id.example/userinfo"] == 1);
  w.claims.erase("email");
  w.userinfo["sub"] = "eve";
  CHECK(absl::IsInvalidArgument(w.Redeem().status()));
}

TEST_CASE("Provider: a callback of another provider is refused before its code is used", "[oidc]") {
  ProviderWorld w;
  CHECK(absl::IsInvalidArgument(w.Redeem("https://evil.example").status()));
  CHECK(w.num_calls["https://tokens.example/token"] == 0);
  w.clock.Advance(OidcProvider::kMetadataLifetime);
  w.metadata["authorization_response_iss_parameter_supported"] = true;
  CHECK(absl::IsInvalidArgument(w.Redeem("").status()));
  CHECK(w.num_calls["https://tokens.example/token"] == 0);
}

TEST_CASE("Provider: an unknown key makes the keys be read again, once a minute", "[oidc]") {
  ProviderWorld w;
  REQUIRE(w.Redeem().ok());
  w.signer = std::make_unique<TestSigner>("ES256", "k2");
  for (int i = 0; i < 5; ++i) CHECK(absl::IsInvalidArgument(w.Redeem().status()));
  CHECK(w.num_calls["https://id.example/keys"] == 1);
  w.clock.Advance(OidcProvider::kKeysPause);
  CHECK(w.Redeem().ok());
  CHECK(w.num_calls["https://id.example/keys"] == 2);
  CHECK(w.num_calls["https://id.example/.well-known/openid-configuration"] == 1);
}

TEST_CASE("Provider: one that is away or says nonsense is unavailable", "[oidc]") {
  ProviderWorld w;
  w.is_away = true;
  CHECK(absl::IsUnavailable(w.provider.AuthorizationUrl(w.login, kBack).status()));
  w.is_away = false;
  const auto refused_with = [&](const char* name, const Json& value) {
    const Json good = w.metadata[name];
    w.metadata[name] = value;
    const absl::Status status = w.provider.AuthorizationUrl(w.login, kBack).status();
    w.metadata[name] = good;
    return absl::IsUnavailable(status);
  };
  CHECK(refused_with("issuer", "https://evil.example"));
  for (const char* const name : {"authorization_endpoint", "token_endpoint", "jwks_uri",
                                 "userinfo_endpoint", "end_session_endpoint"}) {
    for (const char* const address :
         {"http://id.example/x", "file:///etc/passwd", "http://127.0.0.1/x",
          "https://u:p@evil.example", "https://", "https://a b"}) {
      INFO(name << " " << address);
      CHECK(refused_with(name, address));
    }
  }
  CHECK(w.provider.AuthorizationUrl(w.login, kBack).ok());
}

TEST_CASE("Provider: options are refused by name", "[oidc]") {
  const auto field_of = [](OidcOptions options) { return ErrorField(CheckOidcOptions(options)); };
  const OidcOptions good = {.issuer = kIssuer, .client_id = "lathe"};
  CHECK(CheckOidcOptions(good).ok());
  CHECK(CheckOidcOptions({}).ok());
  OidcOptions bad = good;
  for (const char* const issuer : {"http://id.example", "id.example", "https://x?y", "ftp://x",
                                   "http://169.254.169.254", "https://u@x"}) {
    INFO(issuer);
    bad.issuer = issuer;
    CHECK(field_of(bad) == "oidc_issuer");
  }
  bad.issuer = "http://127.0.0.1:9000";
  CHECK(field_of(bad).empty());
  bad.client_id = "";
  CHECK(field_of(bad) == "oidc_client_id");
  bad = good;
  bad.algorithms = {"RS256", "HS256"};
  CHECK(field_of(bad) == "oidc_algorithms");
  bad = good;
  bad.scopes = "profile";
  CHECK(field_of(bad) == "oidc_scopes");
}

TEST_CASE("Provider: a sign-out leads to the provider and back", "[oidc]") {
  ProviderWorld w;
  CHECK(w.provider.SignOutUrl("https://lathe.example/ui").empty());
  REQUIRE(w.provider.AuthorizationUrl(w.login, kBack).ok());
  CHECK(w.provider.SignOutUrl("https://lathe.example/ui") ==
        "https://id.example/end?client_id=lathe&post_logout_redirect_uri="
        "https%3A%2F%2Flathe.example%2Fui");
}

}  // namespace
}  // namespace lathe::gateway
