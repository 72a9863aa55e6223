// A whole gateway as one object: what main builds and what tests start in-process.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/auth/credential_cache.h"
#include "services/api-gateway/auth/sign_in.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/events/event_hub.h"
#include "services/api-gateway/grpc/grpc_server.h"
#include "services/api-gateway/http/server.h"
#include "services/api-gateway/metrics.h"
#include "services/api-gateway/routes/archive_files.h"
#include "services/api-gateway/routes/long_poll_registry.h"
#include "services/api-gateway/routes/route_table.h"

namespace lathe::gateway {

struct GatewayOptions {
  // The engine and its standbys, "unix:PATH" or "HOST:PORT".
  std::vector<std::string> engine_addresses;
  // TLS of the channels to an engine on another machine.
  ChannelTls engine_tls;
  // File with the gateways' secret, for engines on other machines. Empty: none.
  std::string secret_file;
  // Directory in which the engine keeps checkpoints.
  std::filesystem::path data_dir;
  // Checkpoints that are objects. Null: they are in data_dir.
  std::shared_ptr<CheckpointObjects> objects;
  // Time without an engine after which the gateway says that it is not ready.
  absl::Duration outage_grace = absl::Seconds(15);
  // Time for which a drain goes on serving, unready, until balancers send nothing more.
  absl::Duration drain_delay = absl::ZeroDuration();
  // Longest time that a drain waits for requests in progress, after drain_delay.
  absl::Duration drain_timeout = absl::Seconds(10);
  RouteOptions routes;
  SignInOptions sign_in;
  // Names allowed in the Host header, besides those of the public URL and loopback; see
  // AllowedHosts.
  std::vector<std::string> allowed_hosts;
  // Addresses and networks of proxies; see TrustedProxies.
  std::vector<std::string> trusted_proxies;
  // Offers gRPC reflection.
  bool grpc_reflection = false;
  HttpLimits limits;
  NoticeOptions notices;
  // Sends spans; null: no traces. It must outlive the gateway.
  Tracer* tracer = nullptr;
  // No certificate: the API is served without TLS.
  TlsFiles tls;
};

// Runs entirely on `io`, whose threads the owner provides. io.run() returns some time after Drain.
class Gateway {
 public:
  // `io` and `clock` must outlive it, and `io` must have stopped when it is destroyed.
  Gateway(asio::io_context& io, Clock& clock, GatewayOptions options);

  // Serves the API on `address`, HOST:PORT. Returns the errors of AllowedHosts::For and
  // HttpServer::Listen.
  absl::Status Listen(const std::string& address);
  int port() const { return server_.port(); }
  // Starts to serve gRPC on `address`, HOST:PORT, with the same certificate and keys. Errors as
  // GrpcServer::Start.
  absl::Status ListenGrpc(const std::string& address);
  int grpc_port() const { return grpc_ ? grpc_->port() : 0; }
  const Router& router() const { return router_; }

  // Returns the metrics of the internal page. Callable from any thread.
  std::shared_ptr<prometheus::Registry> metrics() const { return metrics_.registry(); }
  // See GatewayMetrics.
  void SetHostWatch(std::unique_ptr<HostWatch> watch) { metrics_.SetHostWatch(std::move(watch)); }
  // Returns Unavailable while the engine cannot be reached, and after Drain.
  absl::Status CheckReady() const;
  // Returns DeadlineExceeded if `io` has run no timer for 30 s.
  absl::Status CheckLive() const;

  // Turns unready at once and serves on for drain_delay. Then stops accepting, answers long polls
  // with try_again, and lets other requests finish within drain_timeout. A second call ends the
  // delay. Callable from any thread.
  void Drain();
  // Sets what is called once all connections have ended after Drain. Called before Drain.
  void SetOnEnd(std::function<void()> on_end) { on_end_ = std::move(on_end); }

 private:
  // Ends the delay. Runs on the drain timer's strand.
  void Stop();
  // Checks every 20 ms whether all connections have ended, and closes the rest at `deadline`.
  void AwaitConnections(std::chrono::steady_clock::time_point deadline);

  // Sets pulsed_at_ once a second, as proof that the threads of `io` run.
  void Pulse();

  const asio::any_io_executor executor_;
  GatewayOptions options_;
  EngineClient engine_;
  WatchClient watch_;
  LongPollRegistry polls_;
  EventHub events_;
  ArchiveFiles archives_;
  CredentialCache credentials_;
  SignIn sign_in_;
  Router router_;
  GatewayMetrics metrics_;
  HttpServer server_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<std::chrono::steady_clock::time_point> pulsed_at_;
  // The timer and is_pulse_over_ are used on the timer's own strand.
  asio::steady_timer pulse_timer_;
  bool is_pulse_over_ = false;
  // The timer and is_stopping_ are used on the timer's own strand.
  asio::steady_timer drain_timer_;
  bool is_stopping_ = false;
  std::function<void()> on_end_;
  std::unique_ptr<GrpcServer> grpc_;
  std::atomic<bool> is_grpc_open_ = false;
  std::optional<NamedThread> grpc_drain_;
};

}  // namespace lathe::gateway
