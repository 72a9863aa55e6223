// Signing in and out over real sockets, and what a browser's session opens.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "protos/lathe/v1/sign_in.grpc.pb.h"
#include "protos/lathe/v1/users.grpc.pb.h"
#include "services/api-gateway/auth/session_cookies.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

const std::string kSession = FakeEngine::kFakeSession;

// Begins kSession for the right key and the ticket "good".
class FakeSignIn : public v1::SignIn::Service {
 public:
  grpc::Status BeginKeySession(grpc::ServerContext* context, const v1::BeginKeySessionRequest*,
                               v1::BeginSessionResponse* response) override {
    const auto key = context->client_metadata().find("x-api-key");
    if (key == context->client_metadata().end() || key->second != FakeEngine::kFakeKey) {
      return ToGrpcStatus(absl::UnauthenticatedError("unknown key"));
    }
    return Begin(response);
  }
  grpc::Status RedeemTicket(grpc::ServerContext*, const v1::RedeemTicketRequest* request,
                            v1::BeginSessionResponse* response) override {
    if (request->ticket() == "good") return Begin(response);
    return ToGrpcStatus(absl::PermissionDeniedError("bad ticket"));
  }

 private:
  static grpc::Status Begin(v1::BeginSessionResponse* response) {
    response->set_user_session(FakeEngine::kFakeSession);
    response->mutable_expires_at()->set_seconds(absl::ToUnixSeconds(FakeClock().Now()) + 3600);
    return grpc::Status::OK;
  }
};

class FakeUsers : public v1::Users::Service {
 public:
  grpc::Status GetOwnSession(grpc::ServerContext*, const v1::GetOwnSessionRequest*,
                             v1::GetOwnSessionResponse* response) override {
    response->set_key_id("k1");
    response->set_role("viewer");
    response->add_scopes("read");
    return grpc::Status::OK;
  }
  grpc::Status EndOwnSession(grpc::ServerContext*, const v1::EndOwnSessionRequest*,
                             v1::EndOwnSessionResponse*) override {
    ++num_ended;
    return grpc::Status::OK;
  }
  grpc::Status UpdateUser(grpc::ServerContext*, const v1::UpdateUserRequest* request,
                          v1::UpdateUserResponse* response) override {
    response->mutable_user()->set_user_id(request->user_id());
    response->mutable_user()->set_role(request->role());
    response->mutable_user()->set_disabled(request->disabled());
    return grpc::Status::OK;
  }

  int num_ended = 0;
};

struct SignInWorld {
  FakeSignIn sign_in;
  FakeUsers users;
  FakeEngine engine{{&sign_in, &users}};
  RunningGateway gateway{engine};
  HttpClient client{gateway.port()};

  // HttpClient names the host gateway.test:80.
  std::string cookie_name() const { return "lathe_session_80"; }
  HttpAnswer Ask(const std::string& method, const std::string& path, std::vector<Header> headers,
                 const std::string& body = "") {
    headers.push_back({"x-api-key", ""});
    return client.Exchange(method, path, body, headers);
  }
  HttpAnswer AskSignedIn(const std::string& method, const std::string& path,
                         std::vector<Header> headers = {}, const std::string& body = "") {
    headers.push_back({"Cookie", cookie_name() + "=" + kSession});
    return Ask(method, path, std::move(headers), body);
  }
};

const Header kProof = {"X-Lathe-CSRF", CsrfToken(kSession)};
const Header kJson = {"Content-Type", "application/json"};

TEST_CASE("Sign-in: an API key becomes a cookie that scripts cannot read", "[gateway][sign_in]") {
  SignInWorld w;
  const HttpAnswer answer = w.Ask("POST", "/ui/auth/key", {kJson}, R"({"api_key": "tml-fake"})");
  CHECK(answer.status == 204);
  CHECK(answer.headers.at("set-cookie") ==
        w.cookie_name() + "=" + kSession + "; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax");
  CHECK(answer.headers.at("cache-control") == "no-store");
  const HttpAnswer wrong = w.Ask("POST", "/ui/auth/key", {kJson}, R"({"api_key": "tml-wrong"})");
  CHECK(wrong.status == 401);
  CHECK(wrong.headers.count("set-cookie") == 0);
  CHECK(w.Ask("POST", "/ui/auth/key", {kJson}, R"({"api_key": "a\nb"})").status == 401);
  CHECK(w.Ask("POST", "/ui/auth/key", {kJson}, R"({"api_key": 1})").status == 400);
  CHECK(w.Ask("POST", "/ui/auth/key", {kJson}, "[]").status == 400);
  CHECK(w.Ask("POST", "/ui/auth/key", {{"Origin", "http://evil.example"}, kJson},
              R"({"api_key": "tml-fake"})")
            .status == 403);
  const Json methods = Json::parse(w.Ask("GET", "/ui/auth/methods", {}).body);
  CHECK(methods == Json{{"methods", {"key"}}, {"provider", nullptr}});
}

TEST_CASE("Sign-in: wrong keys and tickets are paced like those of the API", "[gateway][sign_in]") {
  FakeSignIn sign_in;
  FakeEngine engine({&sign_in});
  GatewayOptions options;
  options.limits.max_failed_keys_per_minute = 3;
  RunningGateway gateway(engine, options);
  HttpClient client(gateway.port());
  const auto try_key = [&](const std::string& key) {
    return client
        .Exchange("POST", "/ui/auth/key", R"({"api_key": ")" + key + R"("})",
                  {kJson, {"x-api-key", ""}})
        .status;
  };
  for (int i = 0; i < 3; ++i) CHECK(try_key("tml-wrong") == 401);
  CHECK(try_key("tml-wrong") == 401);  // the first one of the slow pace
  CHECK(try_key("tml-fake") == 429);
  const HttpAnswer ticket = client.Exchange("GET", "/ui?ticket=good", "", {{"x-api-key", ""}});
  CHECK(ticket.headers.at("location") == "/ui/login?error=busy");
}

TEST_CASE("Sign-in: the link of `lathe up` makes a session and leaves the address bar",
          "[gateway][sign_in]") {
  SignInWorld w;
  const HttpAnswer answer = w.Ask("GET", "/ui?ticket=good", {});
  CHECK(answer.status == 303);
  CHECK(answer.headers.at("location") == "/ui");
  CHECK(absl::StrContains(answer.headers.at("set-cookie"), kSession));
  CHECK(answer.headers.at("referrer-policy") == "no-referrer");
  for (const char* const path : {"/ui?ticket=bad", "/ui?ticket=", "/ui?ticket=%0a"}) {
    INFO(path);
    const HttpAnswer refused = w.Ask("GET", path, {});
    CHECK(refused.status == 303);
    CHECK(refused.headers.at("location") == "/ui/login?error=expired");
    CHECK(refused.headers.count("set-cookie") == 0);
  }
}

TEST_CASE("Sign-in: the session describes itself, and signs out with its proof",
          "[gateway][sign_in]") {
  SignInWorld w;
  const HttpAnswer me = w.AskSignedIn("GET", "/ui/api/v1/me");
  REQUIRE(me.status == 200);
  CHECK(me.headers.at("cache-control") == "no-store");
  const Json json = Json::parse(me.body);
  CHECK(json["csrf_token"] == kProof.value);
  CHECK(json["role"] == "viewer");
  CHECK(json["user"].is_null());
  CHECK(json["key"]["key_id"] == "k1");
  CHECK(w.Ask("GET", "/ui/api/v1/me", {}).status == 401);

  CHECK(CodeOf(w.AskSignedIn("POST", "/ui/auth/logout")) == "bad_csrf");
  CHECK(w.users.num_ended == 0);
  const HttpAnswer out = w.AskSignedIn("POST", "/ui/auth/logout", {kProof});
  CHECK(out.status == 200);
  CHECK(Json::parse(out.body) == Json{{"redirect", nullptr}});
  CHECK(absl::StrContains(out.headers.at("set-cookie"), "=; Path=/; Max-Age=0"));
  CHECK(out.headers.at("clear-site-data") == "\"cache\", \"storage\"");
  CHECK(w.users.num_ended == 1);
}

TEST_CASE("Sign-in: cookies open nothing outside of /ui, and keys nothing in /ui/api",
          "[gateway][sign_in]") {
  SignInWorld w;
  std::set<std::string> mirrored;
  for (const Route& route : w.gateway.gateway().router().routes()) {
    INFO(route.method << " " << route.pattern);
    if (route.is_mirror) mirrored.insert(route.method + route.pattern);
    if (route.access == Access::kPublic) continue;
    const std::string path = absl::StrReplaceAll(route.pattern, {{"{", ""}, {"}", ""}});
    const bool is_for_browsers = absl::StartsWith(route.pattern, "/ui/");
    CHECK((route.access == Access::kSession) == is_for_browsers);
    if (is_for_browsers) {
      CHECK(w.client.Exchange(route.method, path).status == 401);
      // A session of another name or form is none.
      CHECK(w.Ask(route.method, path, {kProof, {"Cookie", "lathe_session=" + kSession}}).status ==
            401);
      if (route.method != "GET") CHECK(CodeOf(w.AskSignedIn(route.method, path)) == "bad_csrf");
    } else {
      CHECK(w.AskSignedIn(route.method, path, {kProof}).status == 401);
      // The session is no key either.
      CHECK(w.client.Exchange(route.method, path, "", {{"x-api-key", kSession}}).status == 401);
    }
  }
  for (const Route& route : w.gateway.gateway().router().routes()) {
    if (!absl::StartsWith(route.pattern, "/api/v1/") || route.access == Access::kPublic) continue;
    INFO(route.pattern);
    CHECK(mirrored.count(route.method + "/ui" + route.pattern) == 1);
  }
}

TEST_CASE("Sign-in: the mirror of the API works with the cookie, and changes need proof",
          "[gateway][sign_in]") {
  SignInWorld w;
  const HttpAnswer capabilities = w.AskSignedIn("GET", "/ui/api/v1/get_server_capabilities");
  CHECK(capabilities.status == 200);
  CHECK(capabilities.headers.at("cache-control") == "no-store");
  const std::string path = "/ui/api/v1/users/u1";
  const std::string body = R"({"role": "admin", "disabled": true})";
  CHECK(CodeOf(w.AskSignedIn("PATCH", path, {kJson}, body)) == "bad_csrf");
  CHECK(CodeOf(w.AskSignedIn("PATCH", path, {kJson, {"X-Lathe-CSRF", "0"}}, body)) == "bad_csrf");
  CHECK(CodeOf(w.AskSignedIn("PATCH", path, {kJson, kProof, {"Sec-Fetch-Site", "cross-site"}},
                             body)) == "bad_origin");
  CHECK(CodeOf(w.AskSignedIn("PATCH", path, {kJson, kProof, {"Origin", "null"}}, body)) ==
        "bad_origin");
  const HttpAnswer changed =
      w.AskSignedIn("PATCH", path, {kJson, kProof, {"Sec-Fetch-Site", "same-origin"}}, body);
  REQUIRE(changed.status == 200);
  const Json user = Json::parse(changed.body);
  CHECK(user["user_id"] == "u1");
  CHECK(user["role"] == "admin");
  CHECK(user["disabled"] == true);
}

TEST_CASE("Sign-in: an ended session is 401 with its reason", "[gateway][sign_in]") {
  SignInWorld w;
  const HttpAnswer answer =
      w.Ask("GET", "/ui/api/v1/me", {{"Cookie", w.cookie_name() + "=" + MakeUserSession()}});
  CHECK(answer.status == 401);
  CHECK(CodeOf(answer) == "bad_session");
}

}  // namespace
}  // namespace lathe::gateway
