// The internal HTTP page of a process: /metrics, /livez, /readyz.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe {

// Serves `registry` on /metrics, 200 on /livez while the process can answer at all, and on /readyz
// 200 or 503 with the reason. Two threads of its own; the destructor stops them.
class MetricsServer {
 public:
  // Called on the server's thread; must not block.
  using ReadyCheck = std::function<absl::Status()>;

  // `address` is HOST:PORT, port 0 picks a free one. Unavailable when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry,
      ReadyCheck is_ready);
  ~MetricsServer();

  // The bound port.
  int port() const;

 private:
  struct Server;
  explicit MetricsServer(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace lathe
