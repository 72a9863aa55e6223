// A whole gateway as one object: what main builds and what tests start in-process.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/auth/credential_cache.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/http/server.h"
#include "services/api-gateway/metrics.h"
#include "services/api-gateway/routes/archive_files.h"
#include "services/api-gateway/routes/poll_gate.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {

struct GatewayOptions {
  // The engine and its standbys, "unix:PATH" or "HOST:PORT".
  std::vector<std::string> engine_addresses;
  // With which an engine on another machine is dialled.
  ChannelTls engine_tls;
  // Where the engine keeps checkpoints.
  std::filesystem::path data_dir;
  // How long a drain waits for requests in progress.
  absl::Duration drain_timeout = absl::Seconds(10);
  RouteOptions routes;
  // Names that requests may come for, besides the public URL's and loopback's: see AllowedHosts.
  std::vector<std::string> allowed_hosts;
  HttpLimits limits;
  NoticeOptions notices;
  // Without a certificate the API is served in the clear.
  TlsFiles tls;
};

// Everything runs on `io`, whose threads the owner provides; io.run() returns some time after
// Drain.
class Gateway {
 public:
  // `io` and `clock` must outlive it, and `io` must have stopped when it is destroyed.
  Gateway(asio::io_context& io, Clock& clock, GatewayOptions options);

  // HOST:PORT; errors of AllowedHosts::For and HttpServer::Listen.
  absl::Status Listen(const std::string& address);
  int port() const { return server_.port(); }
  const Router& router() const { return router_; }

  // For the internal page. Any thread.
  std::shared_ptr<prometheus::Registry> metrics() const { return metrics_.registry(); }
  // Unavailable while the engine cannot be reached, and from Drain on.
  absl::Status CheckReady() const;
  // DeadlineExceeded when no thread of `io` has come to a timer for 30 s.
  absl::Status CheckLive() const;

  // Stops accepting, answers held polls try_again, lets other requests finish within
  // drain_timeout. Any thread, once.
  void Drain();

 private:
  // Looks every few milliseconds whether all connections have ended.
  void AwaitConnections(std::chrono::steady_clock::time_point deadline);

  // Shows that the threads of io_context run.
  void Pulse();

  GatewayOptions options_;
  EngineClient engine_;
  WatchClient watch_;
  PollGate polls_;
  ArchiveFiles archives_;
  CredentialCache credentials_;
  Router router_;
  GatewayMetrics metrics_;
  HttpServer server_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<std::chrono::steady_clock::time_point> pulsed_at_;
  // On a strand of its own, as the flag is.
  asio::steady_timer pulse_timer_;
  bool is_pulse_over_ = false;
  asio::steady_timer drain_timer_;
};

}  // namespace lathe::gateway
