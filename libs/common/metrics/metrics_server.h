// The internal HTTP page of a process: /metrics, /livez, /readyz.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe {

// Serves `registry` on /metrics, and on /livez and /readyz 200 or 503 with the reason. Two threads
// of its own; the destructor stops them.
class MetricsServer {
 public:
  // Called on the server's threads; must not block.
  using Check = std::function<absl::Status()>;

  // `address` is HOST:PORT, port 0 picks a free one. Unavailable when it cannot be bound.
  // `is_live`: a process that says no is to be killed; answering at all is what most need.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry, Check is_ready,
      Check is_live = AlwaysOk);
  ~MetricsServer();

  // The bound port.
  int port() const;

 private:
  static absl::Status AlwaysOk() { return absl::OkStatus(); }

  struct Server;
  explicit MetricsServer(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace lathe
