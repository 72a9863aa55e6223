// Promises of every store about leadership and its lease.
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

LeaseRow LeaseFor(const std::string& process) {
  return {.process = process, .address = process + ".sock", .duration = absl::Seconds(6)};
}

LeaseRow Read(Store& store) {
  const absl::StatusOr<LeaseRow> lease = store.ReadLease();
  INFO(lease.status());
  REQUIRE(lease.ok());
  return *lease;
}

int64_t Take(Store& store, const std::string& process) {
  const absl::StatusOr<int64_t> term = store.TakeLease(Read(store), LeaseFor(process));
  INFO(term.status());
  REQUIRE(term.ok());
  return *term;
}

TEST_CASE("Store: a lease names its holder, also after a restart", "[store]") {
  auto harness = MakeStoreHarness();
  CHECK(Read(harness->store()).duration == absl::ZeroDuration());
  const int64_t term = Take(harness->store(), "a");
  harness->Reopen();
  const LeaseRow lease = Read(harness->store());
  CHECK(lease.term == term);
  CHECK(lease.process == "a");
  CHECK(lease.address == "a.sock");
  CHECK(lease.duration == absl::Seconds(6));
  CHECK(lease.num_renewals == 0);
}

TEST_CASE("Store: a renewal shows, and only the leader's counts", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t old_term = Take(harness->store(), "a");
  CHECK(harness->store().RenewLease(old_term).ok());
  CHECK(Read(harness->store()).num_renewals == 1);
  const int64_t term = Take(harness->store(), "b");
  CHECK(term > old_term);
  CHECK(harness->store().RenewLease(old_term).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Read(harness->store()).num_renewals == 0);
  CHECK(harness->store().RenewLease(term).ok());
}

TEST_CASE("Store: a lease that was renewed or taken since it was read cannot be taken", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = Take(harness->store(), "a");
  const LeaseRow seen = Read(harness->store());
  const bool is_renewed = GENERATE(true, false);
  if (is_renewed) {
    REQUIRE(harness->store().RenewLease(term).ok());
  } else {
    Take(harness->store(), "b");
  }
  const LeaseRow before = Read(harness->store());
  CHECK(harness->store().TakeLease(seen, LeaseFor("c")).status().code() ==
        absl::StatusCode::kAborted);
  CHECK(Read(harness->store()).process == before.process);
  CHECK(Read(harness->store()).term == before.term);
}

TEST_CASE("Store: a taken lease refuses what the leader before commits and loads", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t old_term = Take(store, "a");
  REQUIRE(store.Load(old_term).ok());
  const std::vector<Write> early = {PutSession{TestSession("early")}};
  REQUIRE(store.Commit(old_term, early, {}).ok());
  const int64_t term = Take(store, "b");
  const std::vector<Write> late = {PutSession{TestSession("late")}};
  CHECK(store.Commit(old_term, late, {}).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(store.Load(old_term).status().code() == absl::StatusCode::kFailedPrecondition);
  const absl::StatusOr<StoredState> state = store.Load(term);
  REQUIRE(state.ok());
  CHECK(state->term == term);
  CHECK(state->sessions.size() == 1);
  CHECK(store.Commit(term, late, {}).ok());
}

TEST_CASE("Store: a released lease has no owner, and only its owner can release it", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t old_term = Take(harness->store(), "a");
  const int64_t term = Take(harness->store(), "b");
  CHECK(harness->store().ReleaseLease(old_term).ok());
  CHECK(Read(harness->store()).duration == absl::Seconds(6));
  CHECK(harness->store().ReleaseLease(term).ok());
  CHECK(Read(harness->store()).duration == absl::ZeroDuration());
  CHECK(Take(harness->store(), "c") > term);
}

TEST_CASE("Store: if many engines take one lease at once, one of them gets it", "[store]") {
  auto harness = MakeStoreHarness();
  const LeaseRow seen = Read(harness->store());
  std::array<absl::StatusOr<int64_t>, 8> terms;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < terms.size(); ++i) {
      threads.emplace_back(
          [&, i] { terms[i] = harness->store().TakeLease(seen, LeaseFor(std::to_string(i))); });
    }
  }
  int num_leaders = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!terms[i].ok()) continue;
    ++num_leaders;
    CHECK(Read(harness->store()).process == std::to_string(i));
    CHECK(Read(harness->store()).term == *terms[i]);
  }
  CHECK(num_leaders == 1);
}

}  // namespace
}  // namespace lathe::engine
