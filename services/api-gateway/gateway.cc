#include "services/api-gateway/gateway.h"

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <utility>

#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr std::chrono::milliseconds kDrainCheck{20};
constexpr std::chrono::seconds kPulsePeriod{1};
constexpr absl::Duration kMaxPulseAge = absl::Seconds(30);

}  // namespace

Gateway::Gateway(asio::io_context& io, Clock& clock, GatewayOptions options)
    : executor_(io.get_executor()),
      options_(std::move(options)),
      engine_(options_.engine_addresses, Dialer(options_.engine_tls), options_.secret_file),
      watch_(io.get_executor(), engine_, options_.outage_grace),
      polls_(options_.limits.max_polls_per_key),
      events_(io.get_executor(), engine_,
              {.max_viewers = options_.limits.max_viewers,
               .max_viewers_per_tenant = options_.limits.max_viewers_per_tenant}),
      archives_(options_.data_dir, options_.objects),
      credentials_(engine_, clock, options_.limits.max_failed_keys_per_minute,
                   options_.routes.public_url),
      sign_in_(engine_, clock, credentials_.failed_attempts(), options_.routes.public_url,
               options_.sign_in),
      router_(AllRoutes({engine_, watch_, polls_, events_, archives_, sign_in_,

                         [this] { return CheckReady(); }, options_.routes})),
      metrics_([this] {
        return GatewayGauges{.num_connections = server_.num_connections(),
                             .num_waiting_polls = polls_.num_waiting(),
                             .num_viewers = events_.num_viewers(),
                             .num_watched_requests = watch_.num_subscriptions(),
                             .inflight_bytes = server_.budget().num_reserved(),
                             .max_inflight_bytes = server_.budget().max_bytes(),
                             .is_engine_connected = watch_.is_connected(),
                             .spans = options_.tracer == nullptr ? SpanExporter::Counts()
                                                                 : options_.tracer->counts()};
      }),
      server_(io, router_,
              {.authorize = [this](const Route& route,
                                   Request& request) { return credentials_.Check(route, request); },
               .on_answered = [this](const Answered& answered) { metrics_.OnAnswer(answered); },
               .notices = Notices(options_.notices),
               .tracer = options_.tracer},
              options_.limits, options_.tls),
      pulsed_at_(std::chrono::steady_clock::now()),
      pulse_timer_(asio::make_strand(io)),
      drain_timer_(asio::make_strand(io)) {
  asio::post(pulse_timer_.get_executor(), [this] { Pulse(); });
}

void Gateway::Pulse() {
  if (is_pulse_over_) return;
  pulsed_at_ = std::chrono::steady_clock::now();
  if (is_grpc_open_) grpc_->SetServing(CheckReady().ok());
  pulse_timer_.expires_after(kPulsePeriod);
  pulse_timer_.async_wait([this](boost::system::error_code) { Pulse(); });
}

absl::Status Gateway::CheckReady() const {
  if (is_draining_) return absl::UnavailableError("the gateway is stopping");
  if (!watch_.is_available()) return absl::UnavailableError("the engine is not reachable");
  return absl::OkStatus();
}

absl::Status Gateway::CheckLive() const {
  const absl::Duration age = absl::FromChrono(std::chrono::steady_clock::now() - pulsed_at_.load());
  if (age < kMaxPulseAge) return absl::OkStatus();
  return absl::DeadlineExceededError("no timer ran for " + absl::FormatDuration(age));
}

absl::Status Gateway::Listen(const std::string& address) {
  ASSIGN_OR_RETURN(AllowedHosts hosts,
                   AllowedHosts::For(address, options_.allowed_hosts, options_.routes.public_url));
  ASSIGN_OR_RETURN(TrustedProxies proxies, TrustedProxies::Parse(options_.trusted_proxies));
  return server_.Listen(address, std::move(hosts), std::move(proxies));
}

absl::Status Gateway::ListenGrpc(const std::string& address) {
  ASSIGN_OR_RETURN(TrustedProxies proxies, TrustedProxies::Parse(options_.trusted_proxies));
  const HttpLimits& limits = options_.limits;
  ASSIGN_OR_RETURN(
      grpc_,
      GrpcServer::Start(
          {.address = address,
           .tls = options_.tls,
           .max_message_bytes = limits.max_inflated_bytes,
           .max_memory_bytes = limits.max_inflight_bytes,
           .handshake_timeout = limits.head_timeout,
           .idle_timeout = limits.idle_timeout},
          {.executor = executor_,
           .engine = engine_,
           .watch = watch_,
           .budget = server_.budget(),
           .authorize = [this](const Route& route,
                               Request& request) { return credentials_.Check(route, request); },
           .proxies = std::move(proxies),
           .max_calls_per_key = limits.max_polls_per_key,
           .reflection = options_.grpc_reflection,
           .on_answered = [this](const Answered& answered) { metrics_.OnAnswer(answered); },
           .tracer = options_.tracer}));
  is_grpc_open_ = true;
  return absl::OkStatus();
}

void Gateway::Drain() {
  const bool is_second = is_draining_.exchange(true);
  server_.Leave();
  if (grpc_ && !is_second) grpc_->SetServing(false);
  if (!is_second) {
    LogInfo("draining", {{"connections", server_.num_connections()},
                         {"waiting_polls", polls_.num_waiting()},
                         {"delay_seconds", absl::ToDoubleSeconds(options_.drain_delay)}});
  }
  const bool is_delayed = !is_second && options_.drain_delay > absl::ZeroDuration();
  asio::post(drain_timer_.get_executor(), [this, is_delayed] {
    if (!is_delayed) return Stop();
    drain_timer_.expires_after(absl::ToChronoMilliseconds(options_.drain_delay));
    drain_timer_.async_wait([this](boost::system::error_code) { Stop(); });
  });
}

void Gateway::Stop() {
  if (is_stopping_) return;
  is_stopping_ = true;
  drain_timer_.cancel();
  LogInfo("closing the listeners",
          {{"connections", server_.num_connections()}, {"waiting_polls", polls_.num_waiting()}});
  server_.Drain();
  polls_.EndAll();
  events_.EndAll();
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(options_.drain_timeout);
  // The shutdown waits for calls, so it may not hold up the threads that serve them.
  if (grpc_) {
    grpc_drain_.emplace("grpc-drain", [this] {
      grpc_->Shutdown(options_.drain_timeout);
      is_grpc_open_ = false;
    });
  }
  AwaitConnections(deadline);
}

void Gateway::AwaitConnections(std::chrono::steady_clock::time_point deadline) {
  const bool is_late = std::chrono::steady_clock::now() >= deadline;
  if (is_late) {
    engine_.CancelAll();
    server_.CloseAll();
  }
  if (!is_grpc_open_ && (is_late || server_.num_connections() == 0)) {
    watch_.Stop();
    events_.Stop();
    if (on_end_) on_end_();
    asio::post(pulse_timer_.get_executor(), [this] {
      is_pulse_over_ = true;
      pulse_timer_.cancel();
    });
    return;
  }
  drain_timer_.expires_after(kDrainCheck);
  drain_timer_.async_wait(
      [this, deadline](boost::system::error_code) { AwaitConnections(deadline); });
}

}  // namespace lathe::gateway
