// A gateway on a free port of 127.0.0.1 with its own two threads, for tests.
#pragma once

#include <boost/asio/io_context.hpp>
#include <optional>

#include "libs/common/concurrency/named_thread.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/gateway.h"
#include "services/api-gateway/testing/fake_engine.h"

namespace lathe::gateway {

class RunningGateway {
 public:
  // `engine` must outlive it.
  explicit RunningGateway(const FakeEngine& engine, GatewayOptions options = {});
  ~RunningGateway();

  int port() const { return gateway_->port(); }
  // Starts to serve gRPC. Returns the port.
  int ListenGrpc();
  Gateway& gateway() { return *gateway_; }
  FakeClock& clock() { return clock_; }
  // Drains the gateway and joins its threads.
  void Stop();

 private:
  asio::io_context io_;
  FakeClock clock_;
  std::optional<Gateway> gateway_;
  std::optional<NamedThread> first_;
  std::optional<NamedThread> second_;
  bool is_stopped_ = false;
};

}  // namespace lathe::gateway
