// The gateway's metrics; docs/operations.md lists them.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>

#include "libs/common/metrics/host_watch.h"
#include "libs/common/tracing/span_exporter.h"
#include "services/api-gateway/http/connection.h"

namespace lathe::gateway {

// Gauges, read when the metrics page is requested.
struct GatewayGauges {
  int64_t num_connections = 0;
  int64_t num_waiting_polls = 0;
  int64_t num_viewers = 0;
  int64_t num_watched_requests = 0;
  int64_t inflight_bytes = 0;
  int64_t max_inflight_bytes = 0;
  bool is_engine_connected = false;
  SpanExporter::Counts spans;
};

// Counts and times the answers to requests. Thread-safe.
class GatewayMetrics {
 public:
  // `gauges` may run on any thread and must not block.
  explicit GatewayMetrics(std::function<GatewayGauges()> gauges);
  ~GatewayMetrics();

  void OnAnswer(const Answered& answered);

  // Also shows what `watch` sees. Called before the page is served.
  void SetHostWatch(std::unique_ptr<HostWatch> watch);

  std::shared_ptr<prometheus::Registry> registry() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lathe::gateway
