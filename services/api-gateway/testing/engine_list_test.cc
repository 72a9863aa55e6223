// Tests a gateway with the addresses of several engines, one of which is the leader.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "libs/common/protocol.h"
#include "libs/common/time/clock.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/engine_client/watch_client.h"
#include "services/api-gateway/testing/fake_engine.h"

namespace lathe::gateway {
namespace {

// Looks like a stopped engine from outside: connections succeed, but no bytes are sent.
class HungEngine {
 public:
  HungEngine() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hung-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 100) == 0);
  }
  ~HungEngine() {
    close(fd_);
    std::filesystem::remove_all(dir_);
  }

  std::string path() const { return dir_ + "/engine.sock"; }
  std::string address() const { return "unix:" + path(); }

 private:
  std::string dir_;
  int fd_ = -1;
};

struct Fixture {
  ~Fixture() {
    watch.Stop();
    io.stop();
  }

  HungEngine hung;
  FakeEngine leader;
  asio::io_context io;
  EngineClient client{{hung.address(), leader.address()}};
  WatchClient watch{io.get_executor(), client};
  std::jthread thread{[this] { io.run(); }};
};

TEST_CASE("A gateway leaves an engine that hangs for the one that answers", "[gateway]") {
  Fixture f;
  f.leader.SetQueueState("r1", v1::QUEUE_STATE_ACTIVE);
  f.watch.Subscribe("r1", FakeEngine::kFakeKey, [](const WatchUpdate&) {});
  CHECK(f.leader.AwaitSubscription("r1"));
  CHECK(f.client.current_address() == f.leader.address());
  CHECK(f.leader.watch_protocol() == ToText(OwnProtocol()));
}

TEST_CASE("A call to an engine that hangs ends as unavailable, the next one goes to another",
          "[gateway]") {
  Fixture f;
  const v1::AuthenticateRequest request;
  const auto call = [&] {
    return asio::co_spawn(f.io,
                          f.client.Call(&EngineClient::AsyncStub::Authenticate, request,
                                        std::string(FakeEngine::kFakeKey)),
                          asio::use_future);
  };
  absl::Status ended = call().get().status();
  CHECK(ended.code() == absl::StatusCode::kUnavailable);
  // On a busy machine the leader may also be taken for a hanging engine at first.
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  while (!ended.ok() && SteadyNow() < deadline) ended = call().get().status();
  CHECK(ended.ok());
}

}  // namespace
}  // namespace lathe::gateway
