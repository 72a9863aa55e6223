#include "libs/common/time/clock.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

TEST_CASE("A fake clock moves only when advanced", "[time]") {
  FakeClock clock(absl::FromUnixSeconds(100));
  CHECK(clock.Now() == absl::FromUnixSeconds(100));
  clock.Advance(absl::Milliseconds(1500));
  CHECK(clock.Now() == absl::FromUnixMillis(101'500));
}

TEST_CASE("A real clock lies between two readings of the machine's", "[time]") {
  RealClock clock;
  const absl::Time before = absl::Now();
  const absl::Time now = clock.Now();
  CHECK(now >= before);
  CHECK(now <= absl::Now());
}

TEST_CASE("A wall clock that is right is followed exactly", "[time]") {
  const absl::Time start = absl::FromUnixSeconds(1000);
  SlewedClock follower(start);
  for (int second = 1; second < 100; ++second) {
    const absl::Time wall = start + absl::Milliseconds(second * 999);
    CHECK(follower.Follow(wall, absl::Seconds(1)) == wall);
  }
}

TEST_CASE("A wall clock that was set by an hour is approached slowly", "[time]") {
  const absl::Duration jump = GENERATE(absl::Hours(1), -absl::Hours(1));
  const absl::Time start = absl::FromUnixSeconds(1'000'000);
  SlewedClock follower(start);
  absl::Time last = start;
  absl::Time wall = start + jump;
  int seconds = 0;
  while (last != wall) {
    REQUIRE(++seconds < 40'000);
    wall += absl::Seconds(1);
    const absl::Time now = follower.Follow(wall, absl::Seconds(1));
    REQUIRE(now > last);
    REQUIRE(now - last <= absl::Seconds(2));
    last = now;
  }
  CHECK(seconds > 35'000);
}

}  // namespace
}  // namespace lathe
