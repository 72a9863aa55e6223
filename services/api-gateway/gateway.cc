#include "services/api-gateway/gateway.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "libs/common/logging/logging.h"

namespace lathe::gateway {
namespace {

constexpr std::chrono::milliseconds kDrainCheck{20};

}  // namespace

Gateway::Gateway(asio::io_context& io, Clock& clock, GatewayOptions options)
    : options_(std::move(options)),
      engine_(options_.engine_addresses),
      watch_(io.get_executor(), engine_),
      archives_(options_.data_dir),
      credentials_(engine_, clock),
      router_(AllRoutes({engine_, watch_, polls_, archives_, options_.routes})),
      server_(
          io, router_,
          [this](const Route& route, const Request& request) {
            return credentials_.Check(route, request);
          },
          options_.limits, options_.tls),
      drain_timer_(io) {}

void Gateway::Drain() {
  LogInfo("draining",
          {{"connections", server_.num_connections()}, {"waiting_polls", polls_.num_waiting()}});
  server_.Drain();
  polls_.EndAll();
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(options_.drain_timeout);
  asio::post(drain_timer_.get_executor(), [this, deadline] { AwaitConnections(deadline); });
}

void Gateway::AwaitConnections(std::chrono::steady_clock::time_point deadline) {
  const bool is_late = std::chrono::steady_clock::now() >= deadline;
  if (is_late) {
    engine_.CancelAll();
    server_.CloseAll();
  }
  if (is_late || server_.num_connections() == 0) {
    watch_.Stop();
    return;
  }
  drain_timer_.expires_after(kDrainCheck);
  drain_timer_.async_wait(
      [this, deadline](boost::system::error_code) { AwaitConnections(deadline); });
}

}  // namespace lathe::gateway
