// The gateway's page of metrics; docs/operations.md lists them.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>

#include "services/api-gateway/http/connection.h"

namespace lathe::gateway {

// What is read when the page is asked for.
struct GatewayGauges {
  int64_t num_connections = 0;
  int64_t num_waiting_polls = 0;
  int64_t num_watched_requests = 0;
  bool is_engine_connected = false;
};

// Counts answers. Thread-safe.
class GatewayMetrics {
 public:
  // `gauges` may run on any thread and must not block.
  explicit GatewayMetrics(std::function<GatewayGauges()> gauges);
  ~GatewayMetrics();

  void OnAnswer(const Answered& answered);

  std::shared_ptr<prometheus::Registry> registry() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lathe::gateway
