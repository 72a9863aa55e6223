// The internal HTTP server of a process: /metrics and the probes.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe {

// Answers of a process to probes. Each is called on the server's thread and must not block.
struct Probes {
  using Check = std::function<absl::Status()>;

  // /readyz: the process can take work.
  Check is_ready;
  // /livez: a supervisor should kill a process that fails. Empty: it never fails, because a process
  // that answers is live.
  Check is_live = {};
  // /readyz?standby=ok: the process is ready, or stands by in good order. Empty: as is_ready.
  Check is_serving = {};
  // /startupz: the process has started, and liveness counts from now on. Empty: as is_ready.
  Check has_started = {};
};

// Serves `registry` on /metrics. The probes answer 200, or 503 with the reason. Owns one
// thread, which waits for no client: a connection ends after ten seconds, and when there are 64, a
// further one closes the oldest. The destructor stops the thread.
class MetricsServer {
 public:
  // Starts the server on `address`, HOST:PORT; port 0 picks a free one. Returns Unavailable when it
  // cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Registry> registry, Probes probes);
  ~MetricsServer();

  // Returns the bound port.
  int port() const;

 private:
  struct Server;
  explicit MetricsServer(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace lathe
