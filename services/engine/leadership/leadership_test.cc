#include "services/engine/leadership/leadership.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "libs/common/time/clock.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct Engine {
  Engine(const std::string& name, Store& store, FakeClock& clock)
      : leadership(
            {.address = name + ".sock", .process = name}, store,
            [this](const absl::Status& status) { lost = status; },
            [&clock] { return clock.Now(); }) {}

  absl::Status lost;
  Leadership leadership;
};

struct Fixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  FakeClock clock;
  Engine first{"first", *store, clock};
  Engine second{"second", *store, clock};
};

TEST_CASE("Leadership: the first leads at once, the second waits and says who leads",
          "[leadership]") {
  Fixture f;
  CHECK(f.first.leadership.leader() == "none yet");
  CHECK_FALSE(f.first.leadership.MaySpeak());
  CHECK(f.first.leadership.TryLead());
  CHECK(f.first.leadership.MaySpeak());
  CHECK_FALSE(f.second.leadership.TryLead());
  CHECK_THAT(f.second.leadership.leader(), Catch::Contains("first.sock"));
  CHECK_FALSE(f.second.leadership.MaySpeak());
}

TEST_CASE("Leadership: a standby is in order while it has read the lease within a lease's time",
          "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  CHECK(f.second.leadership.CheckStandby().ok());
  f.clock.Advance(absl::Seconds(6));
  const absl::Status late = f.second.leadership.CheckStandby();
  CHECK(absl::IsUnavailable(late));
  CHECK_THAT(std::string(late.message()), Catch::Contains("could not read the lease for 6s"));
  CHECK_FALSE(f.second.leadership.TryLead());
  CHECK(f.second.leadership.CheckStandby().ok());
}

TEST_CASE("Leadership: a leader that renews keeps it", "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  for (int i = 0; i < 20; ++i) {
    f.clock.Advance(absl::Seconds(1.5));
    f.first.leadership.Renew();
    CHECK_FALSE(f.second.leadership.TryLead());
    CHECK(f.first.leadership.MaySpeak());
  }
}

TEST_CASE("Leadership: a leader that was stopped finds itself replaced and says nothing more",
          "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  f.second.leadership.TryLead();
  f.clock.Advance(absl::Seconds(6.6));
  CHECK_FALSE(f.first.leadership.MaySpeak());
  CHECK(f.second.leadership.TryLead());
  CHECK(f.second.leadership.term() > f.first.leadership.term());
  CHECK_FALSE(f.first.leadership.MaySpeak());
  f.first.leadership.Renew();
  CHECK(f.first.lost.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(f.first.leadership.MaySpeak());
  CHECK(f.second.leadership.MaySpeak());
  CHECK(f.store->Load(f.first.leadership.term()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Leadership: a leader that was late continues when no other one has taken its place",
          "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  f.second.leadership.TryLead();
  f.clock.Advance(absl::Seconds(6.1));
  CHECK_FALSE(f.first.leadership.MaySpeak());
  f.first.leadership.Renew();
  CHECK(f.first.leadership.MaySpeak());
  CHECK(f.first.lost.ok());
  f.clock.Advance(absl::Seconds(0.5));
  CHECK_FALSE(f.second.leadership.TryLead());
}

TEST_CASE("Leadership: an engine that ends cleanly is replaced at once", "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  REQUIRE_FALSE(f.second.leadership.TryLead());
  f.first.leadership.Resign();
  CHECK_FALSE(f.first.leadership.MaySpeak());
  CHECK(f.second.leadership.TryLead());
}

TEST_CASE("Leadership: a late resignation does not take the lease from the new leader",
          "[leadership]") {
  Fixture f;
  REQUIRE(f.first.leadership.TryLead());
  f.second.leadership.TryLead();
  f.clock.Advance(absl::Seconds(7));
  REQUIRE(f.second.leadership.TryLead());
  f.first.leadership.Resign();
  CHECK_FALSE(f.first.leadership.TryLead());
  f.second.leadership.Renew();
  CHECK(f.second.lost.ok());
}

TEST_CASE("Leadership: settings out of their bounds are refused naming both", "[leadership]") {
  CHECK(Leadership::Check({}).ok());
  const absl::Status lease = Leadership::Check({.lease = absl::Seconds(1)});
  CHECK_THAT(std::string(lease.message()), Catch::Contains("lease is 1s, expected 2s to 1m"));
  const absl::Status renewal = Leadership::Check({.renewal = absl::Seconds(3)});
  CHECK_THAT(std::string(renewal.message()),
             Catch::Contains("lease_renewal is 3s, expected 100ms to a third of lease, 2s"));
}

}  // namespace
}  // namespace lathe::engine
