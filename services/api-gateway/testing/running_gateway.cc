#include "services/api-gateway/testing/running_gateway.h"

#include <cstdlib>
#include <iostream>

namespace lathe::gateway {

RunningGateway::RunningGateway(const FakeEngine& engine, GatewayOptions options) {
  options.engine_addresses = {engine.address()};
  // Tests name folders by absolute paths, which any data directory allows.
  if (options.data_dir.empty()) options.data_dir = "/nowhere";
  // These are the host names that the tests' clients send.
  if (options.allowed_hosts.empty()) options.allowed_hosts = {"x", "gateway.test"};
  gateway_.emplace(io_, clock_, std::move(options));
  if (const absl::Status status = gateway_->Listen("127.0.0.1:0"); !status.ok()) {
    std::cerr << status << std::endl;
    std::abort();
  }
  first_.emplace("http-0", [this] { io_.run(); });
  second_.emplace("http-1", [this] { io_.run(); });
}

int RunningGateway::ListenGrpc() {
  if (const absl::Status status = gateway_->ListenGrpc("127.0.0.1:0"); !status.ok()) {
    std::cerr << status << std::endl;
    std::abort();
  }
  return gateway_->grpc_port();
}

RunningGateway::~RunningGateway() { Stop(); }

void RunningGateway::Stop() {
  if (is_stopped_) return;
  is_stopped_ = true;
  gateway_->Drain();
  first_->Join();
  second_->Join();
  gateway_.reset();
}

}  // namespace lathe::gateway
