#include "services/api-gateway/metrics.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <string>

namespace lathe::gateway {
namespace {

std::string PageOf(const GatewayMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.registry()->Collect());
}

TEST_CASE("GatewayMetrics: answers count by route and status, never by path", "[metrics]") {
  GatewayMetrics metrics([] { return GatewayGauges(); });
  const Route route{.method = "GET", .pattern = "/api/v1/sessions/{session_id}"};
  metrics.OnAnswer({.route = &route, .status = 200, .took = absl::Milliseconds(250)});
  metrics.OnAnswer({.route = &route, .status = 200, .took = absl::Milliseconds(250)});
  metrics.OnAnswer({.route = &route, .status = 401, .refusal = "unauthenticated"});
  metrics.OnAnswer({.status = 404, .refusal = "unknown_route"});
  const std::string page = PageOf(metrics);
  for (const char* line :
       {"lathe_gateway_requests_total{method=\"GET\",route=\"/api/v1/sessions/"
        "{session_id}\",status=\"200\"} 2\n",
        "lathe_gateway_requests_total{method=\"none\",route=\"none\",status=\"404\"} 1\n",
        "lathe_gateway_request_seconds_sum{method=\"GET\",route=\"/api/v1/sessions/"
        "{session_id}\"} 0.5\n",
        "lathe_gateway_rejected_total{reason=\"unauthenticated\"} 1\n",
        "lathe_gateway_rejected_total{reason=\"unknown_route\"} 1\n"}) {
    INFO(line);
    CHECK(page.find(line) != std::string::npos);
  }
}

TEST_CASE("GatewayMetrics: gauges are read when the page is asked for", "[metrics]") {
  GatewayGauges gauges;
  GatewayMetrics metrics([&gauges] { return gauges; });
  CHECK(PageOf(metrics).find("lathe_gateway_engine_connected 0\n") != std::string::npos);
  gauges = {.num_connections = 3, .is_engine_connected = true};
  CHECK(PageOf(metrics).find("lathe_gateway_connections 3\n") != std::string::npos);
  CHECK(PageOf(metrics).find("lathe_gateway_engine_connected 1\n") != std::string::npos);
}

}  // namespace
}  // namespace lathe::gateway
