// Everything the gateway serves.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/routes/archive_files.h"
#include "services/api-gateway/routes/poll_gate.h"

namespace lathe::gateway {

struct RouteOptions {
  // How long a poll waits before it is answered try_again; at most 40 s.
  absl::Duration poll_hold = absl::Seconds(20);
  // Scheme and host of download links, "https://lathe.example:8443"; empty: from the Host header.
  std::string public_url;
  // Whether clients are told to exchange their key for short-lived tokens; both are always taken.
  bool jwt_auth = false;
  // Whether clients wait for all their samples with one poll, instead of one each.
  bool retrieve_futures = true;
};

// All outlive the routes.
struct RouteContext {
  EngineClient& engine;
  WatchClient& watch;
  PollGate& polls;
  ArchiveFiles& archives;
  RouteOptions options;
};

std::vector<Route> AllRoutes(const RouteContext& context);

// One list per resource.
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
std::vector<Route> TraceRoutes(const RouteContext& context);
std::vector<Route> DocsRoutes(const RouteContext& context);

}  // namespace lathe::gateway
