// lathe-gateway: the Tinker API over HTTP, in front of lathe-engine.
#include <google/protobuf/stubs/logging.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/config/option_set.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/logging/logging.h"
#include "libs/common/memory/process_memory.h"
#include "libs/common/metrics/host_watch.h"
#include "libs/common/metrics/metrics_server.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/gateway.h"
#include "services/api-gateway/settings.h"

namespace lathe::gateway {
namespace {

// Clients wait for downloads to begin and to go on.
constexpr absl::Duration kObjectPatience = absl::Seconds(20);

// Raises the limit of open files to its maximum, because every polling client holds a socket.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Returns `configured`, or the default if it is 0.
int64_t InflightBytes(int64_t configured) {
  if (configured > 0) return configured;
  return std::max(kMinInflightBytes, AvailableMemoryBytes().value_or(0) / 4);
}

void RunThreads(asio::io_context& io, int num_threads) {
  std::vector<NamedThread> threads;
  for (int i = 1; i < num_threads; ++i) {
    threads.emplace_back("http-" + std::to_string(i), [&io] { io.run(); });
  }
  io.run();
}

// Drains at a signal. A second one, which need not come, ends the delay of the drain.
void DrainOnSignals(Gateway& gateway, asio::signal_set& signals) {
  gateway.SetOnEnd(
      [&signals] { asio::post(signals.get_executor(), [&signals] { signals.cancel(); }); });
  signals.async_wait([&gateway, &signals](boost::system::error_code error, int) {
    if (error) return;
    signals.async_wait([&gateway](boost::system::error_code second_error, int) {
      if (!second_error) gateway.Drain();
    });
    gateway.Drain();
  });
}

// Returns null if the settings name no metrics listener.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const Settings& settings,
                                                            Gateway& gateway) {
  if (settings.metrics_listen.empty()) return nullptr;
  gateway.SetHostWatch(std::make_unique<HostWatch>(
      HostWatch::Options{.directories = {},
                         .certificates = {{"tls_cert", settings.gateway.tls.cert},
                                          {"engine_cert", settings.gateway.engine_tls.cert}}}));
  // A gateway that waits for its engine has started: only the engine can end the wait.
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server,
                   MetricsServer::Start(settings.metrics_listen, gateway.metrics(),
                                        {.is_ready = [&gateway] { return gateway.CheckReady(); },
                                         .is_live = [&gateway] { return gateway.CheckLive(); },
                                         .has_started = [] { return absl::OkStatus(); }}));
  LogInfo("metrics", {{"address", settings.metrics_listen}, {"port", server->port()}});
  return server;
}

int Main(int argc, char** argv) {
  DisableMutexChecks();
  Settings settings = ParseSettings(argc, argv);
  InitLogging("gateway", settings.log_level);
  const LogLevelReload log_level(settings.config_path);
  if (const absl::Status status = ArmFailPoints("gateway"); !status.ok()) {
    LogError("fail points are refused", {{"error", status.message()}});
    return kExitConfiguration;
  }
  if (const absl::Status status = CheckSettings(settings); !status.ok()) {
    LogError("bad configuration", {{"error", status.message()}});
    return kExitConfiguration;
  }
  settings.gateway.data_dir = settings.data_dir;
  absl::StatusOr<std::shared_ptr<ObjectStore>> objects =
      OpenObjectStore(settings.storage, kObjectPatience);
  if (!objects.ok()) {
    LogError("bad configuration", {{"error", objects.status().message()}});
    return kExitConfiguration;
  }
  if (*objects != nullptr) {
    settings.gateway.objects = std::make_shared<CheckpointObjects>(*std::move(objects));
  }
  settings.gateway.routes.poll_hold = absl::Seconds(settings.poll_hold_seconds);
  std::string& public_url = settings.gateway.routes.public_url;
  while (!public_url.empty() && public_url.back() == '/') public_url.pop_back();
  settings.gateway.limits.max_inflight_bytes =
      InflightBytes(settings.gateway.limits.max_inflight_bytes);
  RaiseFileLimit();
  // protobuf would log a line for every malformed body. The client gets the error, which suffices.
  google::protobuf::SetLogHandler(nullptr);

  RealClock clock;
  const std::unique_ptr<Tracer> tracer = MakeTracer(settings.tracing, "lathe-gateway");
  settings.gateway.tracer = tracer.get();
  asio::io_context io(settings.num_threads);
  Gateway gateway(io, clock, settings.gateway);
  if (const absl::Status status = gateway.Listen(settings.listen); !status.ok()) {
    LogError("cannot listen", {{"address", settings.listen}, {"error", status.message()}});
    return status.code() == absl::StatusCode::kInvalidArgument ? kExitConfiguration
                                                               : kExitUnavailable;
  }
  if (!settings.grpc_listen.empty()) {
    if (const absl::Status status = gateway.ListenGrpc(settings.grpc_listen); !status.ok()) {
      LogError("cannot listen", {{"address", settings.grpc_listen}, {"error", status.message()}});
      return kExitUnavailable;
    }
    LogInfo("grpc", {{"address", settings.grpc_listen}, {"port", gateway.grpc_port()}});
  }
  const auto metrics = StartMetrics(settings, gateway);
  if (!metrics.ok()) {
    LogError("metrics page cannot be served", {{"error", metrics.status().message()}});
    return kExitUnavailable;
  }
  LogInfo("listening", {{"address", settings.listen},
                        {"port", gateway.port()},
                        {"max_inflight_bytes", settings.gateway.limits.max_inflight_bytes}});
  asio::signal_set signals(asio::make_strand(io), SIGINT, SIGTERM);
  DrainOnSignals(gateway, signals);
  RunThreads(io, settings.num_threads);
  LogInfo("stopped");
  return 0;
}

}  // namespace
}  // namespace lathe::gateway

int main(int argc, char** argv) { return lathe::gateway::Main(argc, argv); }
