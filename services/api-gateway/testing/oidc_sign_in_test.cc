// Signing in with an identity provider, whose answers are in memory, over the gateway's sockets.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/sign_in.grpc.pb.h"
#include "services/api-gateway/auth/oidc/testing/test_signer.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kProvider[] = "https://id.example";

// Begins a session for members of the group "lab".
class FakeMapping : public v1::SignIn::Service {
 public:
  grpc::Status GetSealingKeys(grpc::ServerContext*, const v1::GetSealingKeysRequest*,
                              v1::GetSealingKeysResponse* response) override {
    response->add_keys()->set_key(std::string(32, 's'));
    return grpc::Status::OK;
  }
  grpc::Status BeginUserSession(grpc::ServerContext*, const v1::BeginUserSessionRequest* request,
                                v1::BeginSessionResponse* response) override {
    last = *request;
    for (const v1::Claim& claim : request->claims()) {
      if (claim.name() != "groups" || claim.values(0) != "lab") continue;
      response->set_user_session(FakeEngine::kFakeSession);
      response->mutable_expires_at()->set_seconds(absl::ToUnixSeconds(FakeClock().Now()) + 60);
      return grpc::Status::OK;
    }
    return ToGrpcStatus(WithDetail(absl::PermissionDeniedError("no line"), "unmapped"));
  }

  v1::BeginUserSessionRequest last;
};

struct OidcWorld {
  FakeMapping mapping;
  FakeEngine engine{{&mapping}};
  TestSigner signer{"ES256"};
  Json claims = {{"iss", kProvider},
                 {"aud", "lathe"},
                 {"sub", "a&b"},
                 {"groups", {"lab"}},
                 {"email", "ada@lab.example"},
                 {"email_verified", true},
                 {"exp", absl::ToUnixSeconds(FakeClock().Now()) + 300},
                 {"iat", absl::ToUnixSeconds(FakeClock().Now())}};
  std::set<std::string> used_codes;
  bool is_away = false;
  RunningGateway gateway{engine, Options()};
  HttpClient client{gateway.port()};

  GatewayOptions Options() {
    GatewayOptions options;
    options.sign_in.oidc = {.issuer = kProvider, .name = "Lab", .client_id = "lathe"};
    options.sign_in.http = [this](const HttpCallRequest& request) { return Answer(request); };
    return options;
  }
  absl::StatusOr<::lathe::HttpAnswer> Answer(const HttpCallRequest& request) {
    if (is_away) return absl::UnavailableError("away");
    const auto json = [](const Json& body) { return ::lathe::HttpAnswer{200, body.dump()}; };
    const std::string base = kProvider;
    if (request.url == base + "/keys") return ::lathe::HttpAnswer{200, signer.KeySet()};
    if (request.url != base + "/token") {
      return json({{"issuer", kProvider},
                   {"authorization_endpoint", base + "/authorize"},
                   {"token_endpoint", base + "/token"},
                   {"jwks_uri", base + "/keys"}});
    }
    // A code works once.
    if (!used_codes.insert(request.body).second) return ::lathe::HttpAnswer{400, "{}"};
    return json({{"id_token", signer.Sign(claims)}});
  }
  HttpAnswer Get(const std::string& path, const std::string& cookie = "") {
    return client.Exchange("GET", path, "", {{"x-api-key", ""}, {"Cookie", cookie}});
  }
  // A sign-in that a browser has begun.
  struct Begun {
    std::string cookie;
    std::string state;
  };
  Begun Begin(const std::string& next = "/ui/runs") {
    const HttpAnswer answer = Get("/ui/auth/login?next=" + next);
    REQUIRE(answer.status == 302);
    const std::string& cookie = answer.headers.at("set-cookie");
    const std::string& url = answer.headers.at("location");
    CHECK(url.starts_with(std::string(kProvider) + "/authorize?"));
    CHECK(absl::StrContains(cookie, "; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"));
    claims["nonce"] = Parameter(url, "nonce");
    return {.cookie = cookie.substr(0, cookie.find(';')), .state = Parameter(url, "state")};
  }
  static std::string Parameter(const std::string& url, const std::string& name) {
    const size_t begin = url.find("&" + name + "=") + name.size() + 2;
    return url.substr(begin, url.find('&', begin) - begin);
  }
  // Returns where the callback leads.
  std::string Finish(const Begun& begun, const std::string& code = "c1") {
    const HttpAnswer answer =
        Get(absl::StrCat("/ui/auth/callback?code=", code, "&state=", begun.state), begun.cookie);
    CHECK(answer.status == 303);
    return answer.headers.at("location");
  }
};

TEST_CASE("OIDC: a person signs in and gets to the page", "[gateway][oidc]") {
  OidcWorld w;
  const OidcWorld::Begun begun = w.Begin();
  CHECK(w.Finish(begun) == "/ui/runs");
  CHECK(w.mapping.last.issuer() == kProvider);
  CHECK(w.mapping.last.subject() == "a&b");
  CHECK(w.mapping.last.email() == "ada@lab.example");
  CHECK(w.mapping.last.email_verified());
  const Json methods = Json::parse(w.Get("/ui/auth/methods").body);
  CHECK(methods == Json{{"methods", {"oidc", "key"}}, {"provider", "Lab"}});
  // Another place is not followed.
  CHECK(w.Finish(w.Begin("//evil.example"), "c2") == "/ui");
  CHECK(w.Finish(w.Begin("/ui/..%2f..%2fevil"), "c3") == "/ui");
}

TEST_CASE("OIDC: the callback gives the session and takes the state", "[gateway][oidc]") {
  OidcWorld w;
  const OidcWorld::Begun begun = w.Begin();
  w.client.Send("GET", absl::StrCat("/ui/auth/callback?code=c&state=", begun.state), "",
                {{"x-api-key", ""}, {"Cookie", begun.cookie}, {"Connection", "close"}});
  const std::string bytes = w.client.ReceiveAll();
  CHECK(absl::StrContains(bytes, absl::StrCat("Set-Cookie: lathe_session_80=",
                                              FakeEngine::kFakeSession, "; Path=/; Max-Age=60")));
  CHECK(absl::StrContains(bytes, "Set-Cookie: lathe_login_80=; Path=/; Max-Age=0"));
}

TEST_CASE("OIDC: a callback needs the cookie and the state of its own sign-in", "[gateway][oidc]") {
  OidcWorld w;
  const std::string refused = "/ui/login?error=state";
  const OidcWorld::Begun first = w.Begin();
  const OidcWorld::Begun second = w.Begin();
  CHECK(w.Finish({.cookie = "", .state = second.state}) == refused);
  CHECK(w.Finish({.cookie = first.cookie, .state = second.state}) == refused);
  CHECK(w.Finish({.cookie = second.cookie, .state = ""}) == refused);
  CHECK(w.Finish({.cookie = second.cookie + "A", .state = second.state}) == refused);
  CHECK(w.Finish({.cookie = "lathe_login_80=", .state = ""}) == refused);
  CHECK(w.used_codes.empty());
  // The ID token has the nonce of the second one.
  CHECK(w.Finish(first) == "/ui/login?error=token");
  CHECK(w.Finish(second, "c2") == "/ui/runs");
  CHECK(w.Finish(second, "c2") == "/ui/login?error=provider");
  w.gateway.clock().Advance(absl::Minutes(11));
  CHECK(w.Finish(w.Begin(), "c3") == "/ui/login?error=token");  // its iat and exp are old
  const OidcWorld::Begun late = w.Begin();
  w.gateway.clock().Advance(absl::Minutes(11));
  CHECK(w.Finish(late, "c4") == "/ui/login?error=expired");
}

TEST_CASE("OIDC: refusals of the provider and of the engine lead to the sign-in page",
          "[gateway][oidc]") {
  OidcWorld w;
  OidcWorld::Begun begun = w.Begin();
  const auto callback = [&](const std::string& query) {
    return w.Get(absl::StrCat("/ui/auth/callback?state=", begun.state, query), begun.cookie)
        .headers.at("location");
  };
  CHECK(callback("&error=access_denied") == "/ui/login?error=denied");
  CHECK(callback("&error=server_error") == "/ui/login?error=provider");
  CHECK(callback("") == "/ui/login?error=provider");
  CHECK(callback("&code=c&iss=https%3A%2F%2Fevil.example") == "/ui/login?error=token");
  w.claims["groups"] = {"other"};
  CHECK(w.Finish(begun, "c5") == "/ui/login?error=unmapped&subject=a%26b");
  w.is_away = true;
  CHECK(w.Finish(begun, "c6") == "/ui/login?error=provider");
  w.gateway.clock().Advance(absl::Hours(1));
  CHECK(w.Get("/ui/auth/login").headers.at("location") == "/ui/login?error=provider");
}

TEST_CASE("OIDC: without a provider there is no sign-in with one", "[gateway][oidc]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  CHECK(client.Exchange("GET", "/ui/auth/login", "", {{"x-api-key", ""}}).status == 404);
}

}  // namespace
}  // namespace lathe::gateway
