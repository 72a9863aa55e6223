#include "services/api-gateway/events/event_ring.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

namespace lathe::gateway {
namespace {

NumberedEvent EventAt(int64_t number, size_t num_bytes = 1, absl::Time at = absl::UnixEpoch()) {
  return {.number = number, .text = std::make_shared<const std::string>(num_bytes, 'x'), .at = at};
}

TEST_CASE("EventRing: a place is followed by the next newer event", "[events]") {
  EventRing ring(10);
  CHECK(ring.After(10) == nullptr);
  ring.Add(EventAt(12));
  ring.Add(EventAt(15));
  CHECK(ring.After(10)->number == 12);
  CHECK(ring.After(12)->number == 15);
  CHECK(ring.After(15) == nullptr);
  CHECK(ring.HasAllAfter(10));
  CHECK_FALSE(ring.HasAllAfter(9));  // before the feed began
}

TEST_CASE("EventRing: it forgets the oldest beyond its number of events", "[events]") {
  EventRing ring(0);
  for (size_t i = 1; i <= EventRing::kMaxEvents + 5; ++i)
    ring.Add(EventAt(static_cast<int64_t>(i)));
  CHECK_FALSE(ring.HasAllAfter(4));
  CHECK(ring.HasAllAfter(5));
  CHECK(ring.After(5)->number == 6);
}

TEST_CASE("EventRing: it forgets the oldest beyond its bytes, and keeps a large newest one",
          "[events]") {
  EventRing ring(0);
  ring.Add(EventAt(1, EventRing::kMaxBytes / 2));
  ring.Add(EventAt(2, EventRing::kMaxBytes / 2));
  CHECK(ring.HasAllAfter(0));
  ring.Add(EventAt(3, EventRing::kMaxBytes * 2));
  CHECK_FALSE(ring.HasAllAfter(1));
  REQUIRE(ring.After(2) != nullptr);
  CHECK(ring.After(2)->number == 3);
}

TEST_CASE("EventRing: it forgets what is old", "[events]") {
  EventRing ring(0);
  ring.Add(EventAt(1));
  ring.Add(EventAt(2, 1, absl::UnixEpoch() + EventRing::kMaxAge));
  ring.Age(absl::UnixEpoch() + EventRing::kMaxAge + absl::Seconds(1));
  CHECK_FALSE(ring.HasAllAfter(0));
  CHECK(ring.HasAllAfter(1));
}

}  // namespace
}  // namespace lathe::gateway
