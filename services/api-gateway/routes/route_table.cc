#include "services/api-gateway/routes/route_table.h"

#include <iterator>

namespace lathe::gateway {

std::vector<Route> AllRoutes(const RouteContext& context) {
  std::vector<Route> all;
  for (const auto list : {ServiceRoutes, SessionRoutes, ModelRoutes, TrainingRoutes, WeightsRoutes,
                          SamplingRoutes, FutureRoutes, CompletionRoutes, RunRoutes, ArchiveRoutes,
                          TenantRoutes, AccountRoutes, TraceRoutes}) {
    std::vector<Route> routes = list(context);
    std::move(routes.begin(), routes.end(), std::back_inserter(all));
  }
  AddDocsRoutes(all);
  return all;
}

}  // namespace lathe::gateway
