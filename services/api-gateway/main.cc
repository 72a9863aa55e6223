// lathe-gateway: the Tinker API over HTTP, in front of lathe-engine.
#include <google/protobuf/stubs/logging.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/config/option_set.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/logging/logging.h"
#include "libs/common/memory/process_memory.h"
#include "libs/common/metrics/metrics_server.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/gateway.h"

namespace lathe::gateway {
namespace {

constexpr int kMaxPollHoldSeconds = 40;
// Least memory for the bodies of requests. It has room for several chunks of the SDK.
constexpr int64_t kMinInflightBytes = 256 << 20;

struct Options {
  GatewayOptions gateway;
  std::string listen;
  std::string data_dir;
  std::string log_level;
  std::string metrics_listen;
  absl::Duration poll_hold;
  int poll_hold_seconds = 0;
  int num_threads = 0;
  bool insecure_i_know = false;
};

void AddLimits(OptionSet& set, HttpLimits& limits) {
  set.Add(&limits.max_head_bytes, "gateway.max_head_bytes", limits.max_head_bytes,
          "maximum bytes of a request's first line and headers");
  set.Add(&limits.max_body_bytes, "gateway.max_body_bytes", limits.max_body_bytes,
          "maximum bytes of a request body as sent");
  set.Add(&limits.max_inflight_bytes, "gateway.max_inflight_bytes", 0,
          "maximum memory for the bodies of all requests, as sent, inflated and parsed; further "
          "requests are answered 429; 0: a quarter of the memory available at the start");
  set.Add(&limits.max_connections, "gateway.max_connections", limits.max_connections,
          "maximum number of open connections; further ones are closed at once");
  set.Add(&limits.max_connections_per_address, "gateway.max_connections_per_address",
          limits.max_connections_per_address,
          "maximum number of open connections from one address; 0: no limit per address");
  set.Add(&limits.max_polls_per_key, "gateway.max_polls_per_key", limits.max_polls_per_key,
          "maximum number of polls of one key that wait; further ones are answered 429");
  set.Add(&limits.max_failed_keys_per_minute, "gateway.max_failed_keys_per_minute",
          limits.max_failed_keys_per_minute,
          "refused keys of one address in a minute, after which the gateway checks its further "
          "keys slowly; 0: no limit");
  set.Add(&limits.idle_timeout, "gateway.idle_timeout", limits.idle_timeout,
          "maximum time between two requests of a connection");
  set.Add(&limits.head_timeout, "gateway.head_timeout", limits.head_timeout,
          "maximum time of a TLS handshake, from a connection to its first byte, and from a "
          "request's first byte to the end of its headers");
  set.Add(&limits.progress_timeout, "gateway.progress_timeout", limits.progress_timeout,
          "maximum time in which no byte of a body arrives, or the client reads no byte of a "
          "response");
  set.Add(&limits.body_timeout, "gateway.body_timeout", limits.body_timeout,
          "maximum time for a whole body");
  set.Add(&limits.min_body_bytes_per_second, "gateway.min_body_bytes_per_second",
          limits.min_body_bytes_per_second,
          "minimum average rate of a body; slower bodies end after progress_timeout");
}

// Returns an error message, or "" if the limits are valid.
std::string CheckLimits(const HttpLimits& limits) {
  const absl::Duration shortest = std::min(
      {limits.idle_timeout, limits.head_timeout, limits.progress_timeout, limits.body_timeout});
  if (shortest <= absl::ZeroDuration()) {
    return "a timeout is " + absl::FormatDuration(shortest) + ", expected more than 0";
  }
  if (limits.max_head_bytes < 1024 || limits.max_head_bytes > kReadBufferBytes / 2) {
    return "max_head_bytes is " + std::to_string(limits.max_head_bytes) + ", allowed are 1024 to " +
           std::to_string(kReadBufferBytes / 2);
  }
  if (limits.max_polls_per_key < 1) {
    return "max_polls_per_key is " + std::to_string(limits.max_polls_per_key) +
           ", expected at least 1";
  }
  if (limits.max_connections < 1 || limits.max_connections_per_address < 0) {
    return "max_connections is " + std::to_string(limits.max_connections) +
           " and max_connections_per_address " +
           std::to_string(limits.max_connections_per_address) + ", expected at least 1 and 0";
  }
  if (limits.max_inflight_bytes < 0 ||
      (limits.max_inflight_bytes > 0 && limits.max_inflight_bytes < kMinInflightBytes)) {
    return "max_inflight_bytes is " + std::to_string(limits.max_inflight_bytes) +
           ", allowed are 0 and at least " + std::to_string(kMinInflightBytes);
  }
  if (limits.max_failed_keys_per_minute < 0) {
    return "max_failed_keys_per_minute is " + std::to_string(limits.max_failed_keys_per_minute) +
           ", expected at least 0";
  }
  if (limits.min_body_bytes_per_second < 1) {
    return "min_body_bytes_per_second is " + std::to_string(limits.min_body_bytes_per_second) +
           ", expected at least 1";
  }
  return "";
}

Options ReadOptions(int argc, char** argv) {
  Options options;
  OptionSet set("lathe-gateway", "Serves the Tinker API over HTTP in front of lathe-engine.");
  set.Add(&options.gateway.engine_addresses, "gateway.engine", {},
          "addresses of the engine and its standbys, unix:PATH or HOST:PORT", {.required = true});
  set.Add(&options.gateway.engine_tls.ca, "gateway.engine_ca", "",
          "PEM file with CAs; an engine on another machine must present a certificate that one "
          "of them signed");
  set.Add(&options.gateway.engine_tls.cert, "gateway.engine_cert", "",
          "PEM file with the client certificate, for an engine that requests one");
  set.Add(&options.gateway.engine_tls.key, "gateway.engine_key", "", "PEM file of its private key");
  set.Add(&options.listen, "gateway.listen", "127.0.0.1:8080", "address of the API, HOST:PORT");
  set.Add(&options.gateway.routes.public_url, "gateway.public_url", "",
          "scheme and host of download links; empty: from the Host header");
  set.Add(&options.gateway.allowed_hosts, "gateway.allowed_hosts", {},
          "names allowed in the Host header, besides those of public_url and loopback; *: any "
          "name; empty on an address other than loopback: any name");
  set.Add(&options.gateway.routes.jwt_auth, "gateway.jwt_auth", false,
          "asks clients to exchange their key for tokens that are valid for an hour");
  set.Add(&options.gateway.routes.retrieve_futures, "gateway.retrieve_futures", true,
          "asks clients to wait for all their samples with one poll, instead of one poll each");
  set.Add(&options.data_dir, "gateway.data_dir", "",
          "the engine's data directory as this process mounts it; empty: no downloads of "
          "checkpoints");
  set.Add(&options.gateway.drain_timeout, "gateway.drain_timeout", options.gateway.drain_timeout,
          "maximum time that a stop waits for requests in progress");
  set.Add(&options.poll_hold_seconds, "gateway.poll_hold_seconds", 20,
          "seconds that a poll waits for its result, at most 40; a hanging engine adds up to 3");
  AddLimits(set, options.gateway.limits);
  set.Add(&options.gateway.tls.cert, "gateway.tls_cert", "",
          "PEM file with the certificate chain for HTTPS; read again when it changes");
  set.Add(&options.gateway.tls.key, "gateway.tls_key", "", "PEM file of its private key");
  set.Add(&options.gateway.tls.client_ca, "gateway.tls_client_ca", "",
          "PEM file with CAs; clients must present a certificate that one of them signed");
  set.Add(&options.insecure_i_know, "gateway.insecure_i_know", false,
          "allows listen to be an address that other machines reach, and engine to be another "
          "machine, without TLS");
  NoticeOptions& notices = options.gateway.notices;
  set.Add(&notices.notice, "gateway.notice", "",
          "text that SDKs since 0.34 write into their users' logs; empty: none");
  set.Add(&notices.notice_level, "gateway.notice_level", notices.notice_level,
          "level at which SDKs log the notice: warning or error",
          {.choices = {"warning", "error"}});
  set.Add(&notices.min_sdk_version, "gateway.min_sdk_version", notices.min_sdk_version,
          "older SDKs are asked to upgrade; empty: no minimum");
  set.Add(&options.metrics_listen, "metrics.gateway_listen", "",
          "HOST:PORT of /metrics, /livez and /readyz, for a private network; empty: no page",
          {.flag = "metrics-listen"});
  set.Add(&options.num_threads, "gateway.threads", 2, "HTTP threads");
  set.Add(&options.log_level, "log.level", "info", "minimum level of log lines",
          {.flag = "log-level", .choices = {"debug", "info", "warn", "error"}});
  set.ParseOrExit(argc, argv);
  return options;
}

// Returns an error message, or "" if the options are valid.
std::string CheckOptions(const Options& options) {
  if (options.gateway.drain_timeout < absl::ZeroDuration()) {
    return "drain_timeout is " + absl::FormatDuration(options.gateway.drain_timeout) +
           ", minimum is 0s";
  }
  if (options.poll_hold_seconds < 1 || options.poll_hold_seconds > kMaxPollHoldSeconds) {
    return "poll_hold_seconds is " + std::to_string(options.poll_hold_seconds) +
           ", allowed are 1 to 40";
  }
  if (options.num_threads < 1 || options.num_threads > 64) {
    return "threads is " + std::to_string(options.num_threads) + ", allowed are 1 to 64";
  }
  absl::Status status = CheckTlsFiles(options.gateway.tls);
  if (status.ok()) status = CheckNotices(options.gateway.notices);
  if (status.ok()) {
    status = CheckExposure({.option = "listen",
                            .address = options.listen,
                            .has_tls = options.gateway.tls.enabled(),
                            .insecure_i_know = options.insecure_i_know});
  }
  if (status.ok()) {
    status = CheckChannelTls(options.gateway.engine_tls, options.gateway.engine_addresses,
                             options.insecure_i_know);
  }
  if (!status.ok()) return std::string(status.message());
  return CheckLimits(options.gateway.limits);
}

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

int Main(int argc, char** argv) {
  DisableMutexChecks();
  Options options = ReadOptions(argc, argv);
  InitLogging("gateway", options.log_level);
  if (const absl::Status status = ArmFailPoints("gateway"); !status.ok()) {
    LogError("fail points are refused", {{"error", status.message()}});
    return kExitConfiguration;
  }
  if (const std::string complaint = CheckOptions(options); !complaint.empty()) {
    LogError("bad configuration", {{"error", complaint}});
    return kExitConfiguration;
  }
  options.gateway.data_dir = options.data_dir;
  options.gateway.routes.poll_hold = absl::Seconds(options.poll_hold_seconds);
  std::string& public_url = options.gateway.routes.public_url;
  while (!public_url.empty() && public_url.back() == '/') public_url.pop_back();
  options.gateway.limits.max_inflight_bytes =
      InflightBytes(options.gateway.limits.max_inflight_bytes);
  RaiseFileLimit();
  // protobuf would log a line for every malformed body. The client gets the error, which suffices.
  google::protobuf::SetLogHandler(nullptr);

  RealClock clock;
  asio::io_context io(options.num_threads);
  Gateway gateway(io, clock, options.gateway);
  if (const absl::Status status = gateway.Listen(options.listen); !status.ok()) {
    LogError("cannot listen", {{"address", options.listen}, {"error", status.message()}});
    return status.code() == absl::StatusCode::kInvalidArgument ? kExitConfiguration
                                                               : kExitUnavailable;
  }
  std::unique_ptr<MetricsServer> metrics;
  if (!options.metrics_listen.empty()) {
    auto started = MetricsServer::Start(
        options.metrics_listen, gateway.metrics(), [&gateway] { return gateway.CheckReady(); },
        [&gateway] { return gateway.CheckLive(); });
    if (!started.ok()) {
      LogError("metrics page cannot be served", {{"error", started.status().message()}});
      return kExitUnavailable;
    }
    metrics = *std::move(started);
    LogInfo("metrics", {{"address", options.metrics_listen}, {"port", metrics->port()}});
  }
  LogInfo("listening", {{"address", options.listen},
                        {"port", gateway.port()},
                        {"max_inflight_bytes", options.gateway.limits.max_inflight_bytes}});
  asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([&gateway](boost::system::error_code error, int) {
    if (!error) gateway.Drain();
  });
  RunThreads(io, options.num_threads);
  LogInfo("stopped");
  return 0;
}

}  // namespace
}  // namespace lathe::gateway

int main(int argc, char** argv) { return lathe::gateway::Main(argc, argv); }
