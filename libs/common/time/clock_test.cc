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

}  // namespace
}  // namespace lathe
