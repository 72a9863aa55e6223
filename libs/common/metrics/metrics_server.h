// The internal HTTP server of a process: /metrics, /livez, /readyz.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe {

// Serves `registry` on /metrics. /livez and /readyz answer 200, or 503 with the reason. Owns one
// thread, which waits for no client: a connection ends after ten seconds, and when there are 64, a
// further one closes the oldest. The destructor stops the thread.
class MetricsServer {
 public:
  // Called on the server's thread; must not block.
  using Check = std::function<absl::Status()>;

  // Starts the server on `address`, HOST:PORT; port 0 picks a free one. Returns Unavailable when it
  // cannot be bound. A supervisor should kill a process whose `is_live` fails. Most processes need
  // only the default, because a process that answers is live.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry, Check is_ready,
      Check is_live = AlwaysOk);
  ~MetricsServer();

  // Returns the bound port.
  int port() const;

 private:
  static absl::Status AlwaysOk() { return absl::OkStatus(); }

  struct Server;
  explicit MetricsServer(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace lathe
