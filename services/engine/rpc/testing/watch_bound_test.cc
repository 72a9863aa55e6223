// A Watch stream whose peer does not read costs the engine a bounded memory.
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

// Returns the count once it has not changed for half a second.
int Settled(const std::atomic<int>& count) {
  int last = -1;
  while (last != count) {
    last = count;
    absl::SleepFor(absl::Milliseconds(500));
  }
  return last;
}

TEST_CASE("Engine: a Watch stream that is not read is not read on", "[engine]") {
  Fixture f;
  CallContext context(f.client.key());
  const auto stream = f.engine.engine().Watch(context);
  // Each is answered with an error that repeats the id.
  v1::WatchRequest request;
  request.mutable_subscribe()->set_request_id(std::string(50'000, 'x'));
  constexpr int kNumRequests = 2000;
  std::atomic<int> num_written = 0;
  std::thread writer([&] {
    while (num_written < kNumRequests && stream->Write(request)) ++num_written;
  });
  // The peers' windows take some messages.
  CHECK(Settled(num_written) < kNumRequests / 2);
  v1::WatchResponse response;
  for (int i = 0; i < kNumRequests; ++i) {
    REQUIRE(stream->Read(&response));
    CHECK(response.has_error());
  }
  writer.join();
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

}  // namespace
}  // namespace lathe::engine
