#include "services/engine/leadership/lease_watch.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

LeaseRow LeaseOf(int64_t term, int64_t num_renewals) {
  return {.term = term,
          .process = "leader",
          .duration = absl::Seconds(6),
          .num_renewals = num_renewals};
}

LeaseWatch Watch(bool has_ended = false) {
  return LeaseWatch("standby", [has_ended](const std::string&) { return has_ended; });
}

TEST_CASE("Lease watch: a lease without an owner is free at once", "[leadership]") {
  CHECK(Watch().IsFree(LeaseRow(), kStart));
}

TEST_CASE("Lease watch: the lease of a process that has ended is free at once", "[leadership]") {
  CHECK(Watch(/*has_ended=*/true).IsFree(LeaseOf(3, 5), kStart));
}

TEST_CASE("Lease watch: one's own lease is free, its answer was lost", "[leadership]") {
  LeaseRow lease = LeaseOf(3, 5);
  lease.process = "standby";
  CHECK(Watch().IsFree(lease, kStart));
}

TEST_CASE("Lease watch: a silent lease is free after its time and a margin, not before",
          "[leadership]") {
  LeaseWatch watch = Watch();
  CHECK_FALSE(watch.IsFree(LeaseOf(3, 5), kStart));
  CHECK_FALSE(watch.IsFree(LeaseOf(3, 5), kStart + absl::Seconds(6)));
  CHECK(watch.IsFree(LeaseOf(3, 5), kStart + absl::Seconds(6.6)));
}

TEST_CASE("Lease watch: each renewal, and each new leader, begins the time anew", "[leadership]") {
  LeaseWatch watch = Watch();
  watch.IsFree(LeaseOf(3, 5), kStart);
  const LeaseRow next = GENERATE(LeaseOf(3, 6), LeaseOf(4, 5), LeaseOf(4, 0));
  CHECK_FALSE(watch.IsFree(next, kStart + absl::Seconds(60)));
  CHECK_FALSE(watch.IsFree(next, kStart + absl::Seconds(66)));
  CHECK(watch.IsFree(next, kStart + absl::Seconds(67)));
}

TEST_CASE("Lease watch: missing renewals during an outage of the store show nothing",
          "[leadership]") {
  LeaseWatch watch = Watch();
  watch.IsFree(LeaseOf(3, 5), kStart);
  watch.Forget();
  CHECK_FALSE(watch.IsFree(LeaseOf(3, 5), kStart + absl::Seconds(60)));
  CHECK(watch.IsFree(LeaseOf(3, 5), kStart + absl::Seconds(67)));
}

TEST_CASE("Lease hold: it ends its time after the call that renewed it began", "[leadership]") {
  LeaseHold hold(absl::Seconds(6));
  CHECK_FALSE(hold.IsHeld(kStart));
  hold.Renew(kStart);
  CHECK(hold.IsHeld(kStart + absl::Seconds(5.9)));
  CHECK_FALSE(hold.IsHeld(kStart + absl::Seconds(6)));
  hold.Renew(kStart + absl::Seconds(4));
  CHECK(hold.IsHeld(kStart + absl::Seconds(9.9)));
  hold.End();
  CHECK_FALSE(hold.IsHeld(kStart + absl::Seconds(4)));
}

TEST_CASE("Lease: whenever a standby may lead, the leader is silent already", "[leadership]") {
  // The standby sees renewals late. The response to the renewal of `asked_at` came late too.
  const auto asked_at = kStart + absl::Seconds(GENERATE(0.0, 1.5, 3.0));
  const absl::Duration seen_after = absl::Seconds(GENERATE(0.0, 0.5, 2.0));
  LeaseHold hold(absl::Seconds(6));
  hold.Renew(asked_at);
  LeaseWatch watch = Watch();
  absl::Time now = asked_at + seen_after;
  while (!watch.IsFree(LeaseOf(3, 5), now)) now += absl::Milliseconds(100);
  CHECK_FALSE(hold.IsHeld(now));
}

}  // namespace
}  // namespace lathe::engine
