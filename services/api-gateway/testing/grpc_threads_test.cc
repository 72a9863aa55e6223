// Tests that no callback thread of gRPC destroys the last channel of the process. These threads end
// with that channel, so such a thread would wait for itself and then use a deleted queue:
// "assertion failed: prior > 0".
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/testing/fake_engine.h"

namespace lathe::gateway {
namespace {

// Number of attempts, because the wrong thread wins the race only occasionally. Each attempt also
// ends its server, because a server's health service keeps the threads alive.
constexpr int kNumRaces = 100;

TEST_CASE("A watch client leaves its last channel to no thread of gRPC", "[gateway]") {
  for (int i = 0; i < kNumRaces; ++i) {
    FakeEngine engine;
    asio::io_context io;
    EngineClient client({engine.address()});
    WatchClient watch(io.get_executor(), client);
    engine.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);  // creates the request
    watch.Subscribe("r1", FakeEngine::kFakeKey, [](const WatchUpdate&) {});
    io.poll();  // starts the stream
    REQUIRE(engine.AwaitSubscription("r1"));
  }
}

TEST_CASE("An answered call leaves its channel to no thread of gRPC", "[gateway]") {
  const v1::AuthenticateRequest request;
  for (int i = 0; i < kNumRaces; ++i) {
    FakeEngine engine;
    asio::io_context io;
    EngineClient client({engine.address()});
    asio::co_spawn(io,
                   client.Call(&EngineClient::AsyncStub::Authenticate, request,
                               std::string(FakeEngine::kFakeKey)),
                   asio::detached);
    io.run();
    CHECK(engine.num_calls("Authenticate") == 1);
  }
}

}  // namespace
}  // namespace lathe::gateway
