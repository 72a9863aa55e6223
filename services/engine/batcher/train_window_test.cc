#include "services/engine/batcher/train_window.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

TEST_CASE("TrainWindow: two batches of requests, counted by tokens", "[batcher]") {
  TrainWindow window(100);
  window.Add("a", "t", 100);
  window.Add("b", "t", 60);
  CHECK(window.HasRoomFor(40));
  CHECK_FALSE(window.HasRoomFor(41));
  window.Remove("a");
  window.Remove("unknown");
  CHECK(window.HasRoomFor(100));
}

TEST_CASE("TrainWindow: a request counts once, however often it is added", "[batcher]") {
  TrainWindow window(100);
  window.Add("a", "t", 100);
  window.Add("a", "t", 100);
  window.Add("large", "t", 101);
  window.Add("large", "t", 101);
  CHECK(window.HasRoomFor(100));
  CHECK(window.HasRoomForLargeOf("t"));
}

TEST_CASE("TrainWindow: a request of many passes takes no room of the others", "[batcher]") {
  TrainWindow window(100);
  REQUIRE(window.IsLarge(101));
  window.Add("large", "t", 1'000'000);
  CHECK(window.HasRoomFor(100));
}

TEST_CASE("TrainWindow: large requests are few, and few of one tenant", "[batcher]") {
  TrainWindow window(100);
  window.Add("a0", "a", 101);
  CHECK(window.HasRoomForLargeOf("a"));
  window.Add("a1", "a", 101);
  CHECK_FALSE(window.HasRoomForLargeOf("a"));
  CHECK(window.HasRoomForLargeOf("b"));
  for (int i = 0; i < 6; ++i) {
    CHECK(window.HasRoomForLarge());
    window.Add(std::to_string(i), std::to_string(i), 101);
  }
  CHECK_FALSE(window.HasRoomForLarge());
  window.Remove("a0");
  CHECK(window.HasRoomForLarge());
  CHECK(window.HasRoomForLargeOf("a"));
  window.Clear();
  CHECK(window.HasRoomForLargeOf("0"));
}

}  // namespace
}  // namespace lathe::engine
