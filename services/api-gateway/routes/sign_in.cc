// Routes with which a browser signs in and out, and those of its session.
#include <utility>

#include "services/api-gateway/auth/sign_in.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/users_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

constexpr char kSignInTag[] = "dashboard";

asio::awaitable<absl::StatusOr<Response>> SignOut(const RouteContext& context, Request& request) {
  const v1::EndOwnSessionRequest question;
  const absl::StatusOr<v1::EndOwnSessionResponse> ended =
      co_await context.engine.Call(&UsersStub::EndOwnSession, question, CallerOf(request));
  if (!ended.ok()) co_return ended.status();
  Json answer = {{"redirect", nullptr}};
  const std::string redirect = context.sign_in.SignOutUrl(request, ended->issuer());
  if (!redirect.empty()) answer["redirect"] = redirect;
  Response response = JsonResponse(answer);
  response.headers = {context.sign_in.cookies().ClearSession(request),
                      {"Cache-Control", "no-store"},
                      {"Clear-Site-Data", "\"cache\", \"storage\""}};
  co_return response;
}

asio::awaitable<absl::StatusOr<Response>> DescribeSession(const RouteContext& context,
                                                          Request& request) {
  const v1::GetOwnSessionRequest question;
  const absl::StatusOr<v1::GetOwnSessionResponse> own =
      co_await context.engine.Call(&UsersStub::GetOwnSession, question, CallerOf(request));
  if (!own.ok()) co_return own.status();
  Response response = JsonResponse(OwnSessionToJson(*own, CsrfToken(request.api_key)));
  response.headers.push_back({"Cache-Control", "no-store"});
  co_return response;
}

asio::awaitable<absl::StatusOr<Response>> SignInWithKey(const RouteContext& context,
                                                        Request& request) {
  if (absl::Status status = CheckJsonType(request); !status.ok()) co_return status;
  absl::StatusOr<std::string> api_key = ReadApiKey(request.body);
  if (!api_key.ok()) co_return api_key.status();
  co_return co_await context.sign_in.WithKey(request, *std::move(api_key));
}

Json MethodsJson(const SignIn& sign_in) {
  Json json = {{"methods", sign_in.Methods()}, {"provider", nullptr}};
  if (!sign_in.provider_name().empty()) json["provider"] = sign_in.provider_name();
  return json;
}

}  // namespace

std::vector<Route> SignInRoutes(const RouteContext& context) {
  return {
      {.method = "GET",
       .pattern = "/ui/auth/methods",
       .tag = kSignInTag,
       .summary = "The ways to sign in",
       .answer = "SignInMethods",
       .access = Access::kPublic,
       .handler = ConstantRoute(MethodsJson(context.sign_in))},
      {.method = "POST",
       .pattern = "/ui/auth/key",
       .tag = kSignInTag,
       .summary = "Sign in with an API key",
       .description = "Sets the cookie of a session that does what the key does, and ends with it.",
       .request = "SignInKey",
       .access = Access::kPublic,
       .max_body_bytes = 16 << 10,
       .handler = [context](Request& request) { return SignInWithKey(context, request); }},
      {.method = "GET",
       .pattern = "/ui/auth/login",
       .tag = kSignInTag,
       .summary = "Leads to the identity provider",
       .query = {"next"},
       .answer_type = "text/plain",
       .status = 302,
       .access = Access::kPublic,
       .handler = [context](Request& request) { return context.sign_in.BeginLogin(request); }},
      {.method = "GET",
       .pattern = "/ui/auth/callback",
       .tag = kSignInTag,
       .summary = "Comes back from the identity provider",
       .answer_type = "text/plain",
       .status = 303,
       .access = Access::kPublic,
       .handler = [context](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
         co_return co_await context.sign_in.EndLogin(request);
       }},
      {.method = "POST",
       .pattern = "/ui/auth/logout",
       .tag = kSignInTag,
       .summary = "Sign out",
       .description = "Needs the header X-Lathe-CSRF, as all changes with a session.",
       .answer = "SignedOut",
       .access = Access::kSession,
       .handler = [context](Request& request) { return SignOut(context, request); }},
      {.method = "GET",
       .pattern = "/ui/api/v1/me",
       .tag = kSignInTag,
       .summary = "The browser's session",
       .description = "With a session, /ui/api/v1 has all paths of /api/v1. Changes there need "
                      "csrf_token in the header X-Lathe-CSRF.",
       .answer = "OwnSession",
       .access = Access::kSession,
       .handler = [context](Request& request) { return DescribeSession(context, request); }},
  };
}

void AddMirrorRoutes(std::vector<Route>& routes) {
  constexpr char kMirrored[] = "/api/v1/";
  std::vector<Route> mirror;
  for (const Route& route : routes) {
    if (!route.pattern.starts_with(kMirrored) || route.access == Access::kPublic) continue;
    Route copy = route;
    copy.pattern = "/ui" + route.pattern;
    copy.access = Access::kSession;
    copy.is_mirror = true;
    copy.carries_notices = false;
    copy.handler =
        [handler = route.handler](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
      absl::StatusOr<Response> response = co_await handler(request);
      if (response.ok()) response->headers.push_back({"Cache-Control", "no-store"});
      co_return response;
    };
    mirror.push_back(std::move(copy));
  }
  std::move(mirror.begin(), mirror.end(), std::back_inserter(routes));
}

}  // namespace lathe::gateway
