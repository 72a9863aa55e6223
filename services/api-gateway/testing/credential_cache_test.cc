#include "services/api-gateway/auth/credential_cache.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "libs/common/rpc/channel.h"
#include "services/api-gateway/testing/fake_engine.h"

namespace lathe::gateway {
namespace {

// Fixture: a cache without a bound on refused keys, in front of a fake engine.
struct Cache {
  FakeEngine engine;
  FakeClock clock;
  EngineClient client{{engine.address()}, Dialer(ChannelTls())};
  CredentialCache cache{client, clock, /*max_failed_keys=*/0};
  Route route;

  // Checks keys one after the other. Returns the number of calls that it took.
  int Check(const std::vector<std::string>& keys) {
    const int before = engine.num_calls("Authenticate");
    asio::io_context io;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          for (const std::string& key : keys) {
            Request request;
            request.api_key = key;
            (void)co_await cache.Check(route, request);
          }
        },
        [](std::exception_ptr) {});
    io.run();
    return engine.num_calls("Authenticate") - before;
  }
};

TEST_CASE("Wrong keys push no good key out of the cache, nor each other's refusals",
          "[credential_cache]") {
  Cache f;
  CHECK(f.Check({FakeEngine::kFakeKey, FakeEngine::kFakeKey}) == 1);
  std::vector<std::string> wrong;
  for (size_t i = 0; i <= CredentialCache::kMaxEntries; ++i) {
    wrong.push_back(absl::StrCat("wrong-", i));
  }
  CHECK(f.Check(wrong) == static_cast<int>(wrong.size()));
  CHECK(f.Check({FakeEngine::kFakeKey}) == 0);
  CHECK(f.Check({wrong.back(), "another", "another"}) == 1);
}

}  // namespace
}  // namespace lathe::gateway
