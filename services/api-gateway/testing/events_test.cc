// Tests events over real sockets and one stream from the engine.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/fake_events.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

// A client of the events of one run.
class EventClient {
 public:
  explicit EventClient(int port, const std::string& run_id = "r",
                       const std::string& last_event_id = "")
      : socket_(io_) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
    const std::string last =
        last_event_id.empty() ? "" : absl::StrCat("Last-Event-ID: ", last_event_id, "\r\n");
    asio::write(socket_,
                asio::buffer(absl::StrCat(
                    "GET /api/v1/events?runs=", run_id, " HTTP/1.1\r\nHost: gateway.test\r\n",
                    "X-API-Key: ", FakeEngine::kFakeKey, "\r\n", last, "\r\n")));
  }

  // Returns what comes up to `end`, and with it; what came if the server ends the stream.
  std::string ReadTo(const std::string& end) {
    boost::system::error_code error;
    size_t size = asio::read_until(socket_, asio::dynamic_buffer(received_), end, error);
    if (error) size = received_.size();
    std::string text = received_.substr(0, size);
    received_.erase(0, size);
    return text;
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
  std::string received_;
};

// Returns the id of the event of which `text` has the first lines.
std::string IdIn(const std::string& text) {
  const size_t begin = text.rfind("id: ") + 4;
  return text.substr(begin, text.find('\n', begin) - begin);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("Events: all clients share one stream of the engine", "[events]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  EventClient first(gateway.port());
  CHECK(Has(first.ReadTo("event: ready\ndata: {}\n\n"), "text/event-stream"));
  EventClient second(gateway.port());
  second.ReadTo("event: ready\ndata: {}\n\n");
  engine.events().PushPoint("r", 4, 0.5);
  const std::string event = first.ReadTo("\n\n");
  CHECK(Has(event, "event: metrics\ndata: {\"is_incomplete\":false,\"run_id\":\"r\""));
  CHECK(second.ReadTo("\n\n") == event);
  CHECK(engine.events().num_streams() == 1);
}

TEST_CASE("Events: a client that comes back gets what it missed", "[events]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  std::string id;
  {
    EventClient client(gateway.port());
    client.ReadTo("event: ready\ndata: {}\n\n");
    engine.events().PushPoint("r", 1, 0.5);
    id = IdIn(client.ReadTo("event: metrics"));
  }
  EventClient watches(gateway.port());
  watches.ReadTo("event: ready\ndata: {}\n\n");
  engine.events().PushPoint("r", 2, 0.25);
  watches.ReadTo("0.25");
  EventClient back(gateway.port(), "r", id);
  CHECK(Has(back.ReadTo("\"values\":[0.25]"), "event: ready"));
  EventClient stranger(gateway.port(), "r", "0000-1-7");
  CHECK(Has(stranger.ReadTo("\n\n"), "event: resync"));
}

TEST_CASE("Events: an engine that is replaced is told, and subscriptions are renewed", "[events]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  EventClient client(gateway.port());
  client.ReadTo("event: ready\ndata: {}\n\n");
  engine.StopServing();
  CHECK(Has(client.ReadTo("\n\n"), "event: engine\ndata: {\"is_reachable\":false}"));
  engine.events().SetTerm(2);
  engine.StartServing();
  CHECK(Has(client.ReadTo("\n\n"), "event: resync\ndata: {\"reason\":\"engine_restarted\"}"));
  engine.events().PushPoint("r", 1, 0.5);
  CHECK(Has(client.ReadTo("\n\n"), "event: metrics"));
}

TEST_CASE("Events: what the engine refuses is refused, and ends later streams", "[events]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  CHECK(HttpClient(gateway.port()).Exchange("GET", "/api/v1/events?runs=absent").status == 404);
  EventClient client(gateway.port());
  client.ReadTo("event: ready\ndata: {}\n\n");
  engine.events().RefuseAll();
  CHECK(client.ReadTo("never").empty());
}

TEST_CASE("Events: bounds name their number", "[events]") {
  FakeEngine engine;
  GatewayOptions options;
  options.limits.max_viewers = 2;
  options.limits.max_viewers_per_tenant = 1;
  RunningGateway gateway(engine, options);
  EventClient client(gateway.port());
  client.ReadTo("event: ready\ndata: {}\n\n");
  HttpClient second(gateway.port());
  const HttpAnswer of_tenant = second.Exchange("GET", "/api/v1/events");
  CHECK(of_tenant.status == 429);
  CHECK(Has(of_tenant.body, "limit is 1"));
}

TEST_CASE("Events: a drain ends clients at once", "[events]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  EventClient client(gateway.port());
  client.ReadTo("event: ready\ndata: {}\n\n");
  gateway.Stop();
  CHECK(client.ReadTo("never").empty());
}

}  // namespace
}  // namespace lathe::gateway
