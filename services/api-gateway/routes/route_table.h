// All routes of the gateway.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/api-gateway/auth/sign_in.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/events/event_hub.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/routes/archive_files.h"
#include "services/api-gateway/routes/long_poll_registry.h"

namespace lathe::gateway {

struct RouteOptions {
  // Time a poll waits before it is answered try_again; at most 40 s.
  absl::Duration poll_hold = absl::Seconds(20);
  // Scheme and host of download links, such as "https://lathe.example:8443". Empty: taken from the
  // Host header.
  std::string public_url;
  // True if client/config asks clients to exchange their key for short-lived tokens. The server
  // accepts keys and tokens in either case.
  bool jwt_auth = false;
  // True if a client waits for all its samples with one poll instead of one poll per sample.
  bool retrieve_futures = true;
};

// Dependencies of the routes. They must outlive the routes.
struct RouteContext {
  EngineClient& engine;
  WatchClient& watch;
  LongPollRegistry& polls;
  EventHub& events;
  ArchiveFiles& archives;
  SignIn& sign_in;
  // Says why the gateway should get no more requests.
  std::function<absl::Status()> check_ready;
  RouteOptions options;
};

// Routes of one resource each.
std::vector<Route> ServiceRoutes(const RouteContext& context);
std::vector<Route> SessionRoutes(const RouteContext& context);
std::vector<Route> ModelRoutes(const RouteContext& context);
std::vector<Route> TrainingRoutes(const RouteContext& context);
std::vector<Route> WeightsRoutes(const RouteContext& context);
std::vector<Route> SamplingRoutes(const RouteContext& context);
std::vector<Route> FutureRoutes(const RouteContext& context);
std::vector<Route> CompletionRoutes(const RouteContext& context);
std::vector<Route> RunRoutes(const RouteContext& context);
std::vector<Route> ArchiveRoutes(const RouteContext& context);
std::vector<Route> TenantRoutes(const RouteContext& context);
std::vector<Route> AccountRoutes(const RouteContext& context);
std::vector<Route> GroupRoutes(const RouteContext& context);
std::vector<Route> TraceRoutes(const RouteContext& context);
std::vector<Route> MetricRoutes(const RouteContext& context);
std::vector<Route> UserRoutes(const RouteContext& context);
std::vector<Route> SignInRoutes(const RouteContext& context);
std::vector<Route> EventRoutes(const RouteContext& context);
std::vector<Route> DashboardRoutes(const RouteContext& context);

// Appends the routes that describe all of `routes`.
void AddDocsRoutes(std::vector<Route>& routes);

// Appends a copy under /ui of each route of /api/v1, for browsers with a session. The OpenAPI
// document leaves the copies out.
void AddMirrorRoutes(std::vector<Route>& routes);

// Returns docs_page/openapi.json, which has everything but the paths, with the paths of `routes`.
std::string OpenApiDocument(const std::vector<Route>& routes);

inline std::vector<Route> AllRoutes(const RouteContext& context) {
  std::vector<Route> all;
  for (const auto list : {ServiceRoutes, SessionRoutes, ModelRoutes, TrainingRoutes, WeightsRoutes,
                          SamplingRoutes, FutureRoutes, CompletionRoutes, RunRoutes, ArchiveRoutes,
                          TenantRoutes, AccountRoutes, GroupRoutes, TraceRoutes, MetricRoutes,
                          UserRoutes, SignInRoutes, EventRoutes, DashboardRoutes}) {
    std::vector<Route> routes = list(context);
    std::move(routes.begin(), routes.end(), std::back_inserter(all));
  }
  AddDocsRoutes(all);
  AddMirrorRoutes(all);
  return all;
}

}  // namespace lathe::gateway
