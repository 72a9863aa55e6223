// Tests the limits of HttpLimits with slow clients over real sockets. A test hangs if its limit has
// no effect.
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <list>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "protos/tinker/tinker_public.pb.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(100);
// Longer than the time from a connection to its first request on a loaded machine.
constexpr absl::Duration kIdle = absl::Seconds(1);
constexpr char kPost[] =
    "POST /api/v1/telemetry HTTP/1.1\r\nHost: x\r\nX-API-Key: tml-fake\r\nContent-Length: "
    "100000\r\n"
    "\r\n";

GatewayOptions WithLimits(const HttpLimits& limits) {
  GatewayOptions options;
  options.limits = limits;
  return options;
}

TEST_CASE("Slow clients: a connection that never sends a byte ends with the head's time",
          "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine,
                         WithLimits({.idle_timeout = absl::Hours(1), .head_timeout = kShort}));
  HttpClient client(gateway.port());
  CHECK(client.IsClosedByServer());
  CheckAlive(gateway);
}

TEST_CASE("Slow clients: a connection ends when no second request follows", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.idle_timeout = kIdle}));
  HttpClient client(gateway.port());
  CHECK(client.Exchange("GET", "/api/v1/healthz").status == 200);
  CHECK(client.IsClosedByServer());
}

TEST_CASE("Slow clients: headers have to end", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.head_timeout = kShort}));
  HttpClient client(gateway.port());
  client.SendRaw("GET /api/v1/healthz HTTP/1.1\r\nHost: x\r\n");
  CHECK(client.IsClosedByServer());
  CheckAlive(gateway);
}

TEST_CASE("Slow clients: a body has to go on", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.progress_timeout = kShort}));
  HttpClient client(gateway.port());
  client.SendRaw(absl::StrCat(kPost, "some bytes"));
  CHECK(client.IsClosedByServer());
  CheckAlive(gateway);
}

// Sends one byte every 10 ms until the server closes the connection.
void Drip(HttpClient& client) {
  asio::io_context io;
  asio::steady_timer pause(io);
  try {
    for (;;) {
      client.SendRaw("x");
      pause.expires_after(std::chrono::milliseconds(10));
      pause.wait();
    }
  } catch (const boost::system::system_error&) {
  }
}

TEST_CASE("Slow clients: a body that drips ends", "[slow]") {
  FakeEngine engine;
  const auto limits = GENERATE(
      HttpLimits{.progress_timeout = absl::Seconds(1), .min_body_bytes_per_second = 1 << 20},
      HttpLimits{.body_timeout = kShort});
  RunningGateway gateway(engine, WithLimits(limits));
  HttpClient client(gateway.port());
  client.SendRaw(kPost);
  Drip(client);
  CheckAlive(gateway);
}

TEST_CASE("Slow clients: a body above the minimum rate is taken", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.min_body_bytes_per_second = 1}));
  HttpClient client(gateway.port());
  CHECK(client.Post("/api/v1/telemetry", "{}" + std::string(100'000, ' ')).status == 200);
}

TEST_CASE("Slow clients: the server stops writing to a client that does not read", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.progress_timeout = kShort}));
  HttpClient client(gateway.port());
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "GET /api/v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n";
  // The answers fill the socket buffers. Then sends block until the server closes the connection.
  const auto send_for_ever = [&] {
    for (;;) client.SendRaw(requests);
  };
  CHECK_THROWS_AS(send_for_ever(), boost::system::system_error);
  CheckAlive(gateway);
}

TEST_CASE("Slow clients: open connections are bounded, in all and by address", "[slow]") {
  FakeEngine engine;
  const auto limits =
      GENERATE(HttpLimits{.max_connections = 3}, HttpLimits{.max_connections_per_address = 3});
  RunningGateway gateway(engine, WithLimits(limits));
  std::list<HttpClient> clients;  // an HttpClient cannot be moved
  for (int i = 0; i < 3; ++i) {
    CHECK(clients.emplace_back(gateway.port()).Exchange("GET", "/api/v1/healthz").status == 200);
  }
  HttpClient one_more(gateway.port());
  CHECK(one_more.IsClosedByServer());
  CHECK(clients.front().Exchange("GET", "/api/v1/healthz").status == 200);
}

TEST_CASE("Slow clients: the bound of headers is the configured one", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine, WithLimits({.max_head_bytes = 1024}));
  const std::vector<Header> large = {{"X-Large", std::string(2000, 'x')}};
  CHECK(HttpClient(gateway.port()).Exchange("GET", "/api/v1/healthz", "", large).status == 431);
  CheckAlive(gateway);
}

int64_t InflightBytes(RunningGateway& gateway) {
  for (const prometheus::MetricFamily& family : gateway.gateway().metrics()->Collect()) {
    if (family.name == "lathe_gateway_inflight_bytes") {
      return static_cast<int64_t>(family.metric[0].gauge.value);
    }
  }
  return -1;
}

// Waits until the memory in flight satisfies `is_reached`.
template <typename Condition>
void AwaitInflight(RunningGateway& gateway, Condition is_reached) {
  asio::io_context io;
  asio::steady_timer pause(io);
  while (!is_reached(InflightBytes(gateway))) {
    pause.expires_after(std::chrono::milliseconds(1));
    pause.wait();
  }
}

TEST_CASE("Slow clients: bodies in flight are bounded, and small requests still pass", "[slow]") {
  FakeEngine engine;
  // Room for 2 MB of a body's three copies for each key, and 3.5 MB in all.
  RunningGateway gateway(engine, WithLimits({.max_inflight_bytes = 12 << 20}));
  const std::string head =
      "POST /api/v1/forward_backward HTTP/1.1\r\nHost: x\r\nX-API-Key: tml-fake\r\n"
      "Content-Type: application/x-protobuf\r\nContent-Length: 1500000\r\n\r\n";
  HttpClient slow(gateway.port());
  slow.SendRaw(head + std::string(1'400'000, 'x'));
  AwaitInflight(gateway, [](int64_t bytes) { return bytes == 3 * 1'500'000; });
  HttpClient other(gateway.port());
  other.SendRaw(head);
  const HttpAnswer refused = other.Receive();
  CHECK(refused.status == 429);
  CHECK(CodeOf(refused) == "gateway_full");
  CHECK(refused.headers.count("retry-after") == 1);
  CHECK(HttpClient(gateway.port()).Post("/api/v1/telemetry", "{}").status == 200);
  const HttpAnswer never =
      HttpClient(gateway.port())
          .Exchange("POST", "/api/v1/forward_backward", std::string(2'500'000, 'x'),
                    {{"Content-Type", "application/x-protobuf"}});
  CHECK(never.status == 413);
  slow.Close();
  AwaitInflight(gateway, [](int64_t bytes) { return bytes == 0; });
}

TEST_CASE("Slow clients: a large body is read, and its memory given back", "[slow]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  tinker_public::ForwardBackwardRequest message;
  message.set_model_id("m");
  message.set_seq_id(1);
  message.add_data()->add_model_input()->mutable_encoded_text()->set_tokens(
      std::string(4 << 20, 't'));
  HttpClient client(gateway.port());
  CHECK(client
            .Exchange("POST", "/api/v1/forward_backward", message.SerializeAsString(),
                      {{"Content-Type", "application/x-protobuf"}})
            .status == 200);
  CHECK(engine.last_forward_backward().data(0).model_input(0).tokens().size() == 4 << 20);
  AwaitInflight(gateway, [](int64_t bytes) { return bytes == 0; });
}

}  // namespace
}  // namespace lathe::gateway
