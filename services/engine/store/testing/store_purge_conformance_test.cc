// Promises of every store about the purge: what stays, and how small its pieces are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

// Commits `count` requests that are done at the time `done_at`, with their results.
void PutDone(Store& store, int64_t term, int count, int64_t done_at) {
  constexpr int kAtOnce = 1000;
  for (int begin = 0; begin < count; begin += kAtOnce) {
    std::vector<Write> writes;
    for (int i = begin; i < std::min(count, begin + kAtOnce); ++i) {
      const std::string id = absl::StrCat("r", i);
      writes.push_back(InsertRequest{TestRequest(id, i)});
      writes.push_back(CompleteRequest{id, RequestState::kDone, "x", done_at});
    }
    const std::vector<Blob> blobs = {{"x", "result"}};
    REQUIRE(store.Commit(term, writes, blobs).ok());
  }
}

// Counts the first `count` requests whose result is there.
int CountResults(Store& store, int count) {
  int num_found = 0;
  for (int i = 0; i < count; ++i) {
    num_found += store.ReadResult("t1", absl::StrCat("r", i))->has_value() ? 1 : 0;
  }
  return num_found;
}

TEST_CASE("Store: a purge of 20,000 results has small pieces, and commits go on between them",
          "[store]") {
  constexpr int kCount = 20'000;
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  PutDone(store, term, kCount, /*done_at=*/50);  // all at the same time
  PurgePass pass{.what = {.done_before = 100}};
  int num_pieces = 0;
  while (pass.phase == PurgePass::Phase::kDone) {
    REQUIRE(store.PurgePiece(term, pass).ok());
    const std::vector<Write> writes = {PutSession{TestSession(absl::StrCat("s", num_pieces))}};
    REQUIRE(store.Commit(term, writes, {}).ok());
    ++num_pieces;
    if (num_pieces == 1) CHECK(CountResults(store, 1000) >= 1000 - kMaxPurgedRows);
  }
  CHECK(num_pieces >= kCount / kMaxPurgedRows);
  CHECK(CountResults(store, kCount) == 0);
  CHECK(store.ListSessions("t1", 1, 0)->total_count == num_pieces);
  CHECK((*store.FindRequest("t1", "r7"))->result_expired);

  CHECK(PurgeAll(store, term, {.rows_before = 100}) > kCount / kMaxPurgedRows);
  CHECK_FALSE(store.FindRequest("t1", "r7")->has_value());
}

TEST_CASE("Store: a purge with nothing due is over after one piece of each kind", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = harness->store().TakeLeadership()->term;
  PutDone(harness->store(), term, 3, /*done_at=*/500);
  CHECK(PurgeAll(harness->store(), term, {100, 100, 100, 100}) == 4);
  CHECK(CountResults(harness->store(), 3) == 3);
}

TEST_CASE("Store: a purge goes on behind rows that rebuild a model", "[store]") {
  constexpr int kKept = 700;
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  const std::vector<Write> model = {PutModel{TestModel("s1:train:0")}};
  REQUIRE(store.Commit(term, model, {}).ok());
  PutDone(store, term, kKept, /*done_at=*/50);
  RequestRow other = TestRequest("other", 1, "s2:train:0");
  const std::vector<Write> last = {InsertRequest{other},
                                   CompleteRequest{"other", RequestState::kDone, "x", 60}};
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store.Commit(term, last, blobs).ok());
  PurgeAll(store, term, {.rows_before = 100});
  CHECK(store.FindRequest("t1", "r1")->has_value());
  CHECK_FALSE(store.FindRequest("t1", "other")->has_value());
  CHECK_FALSE(store.ReadResult("t1", "other")->has_value());
}

TEST_CASE("Store: the result of a replaced request goes with it", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  PutDone(store, term, 1, /*done_at=*/50);
  const std::vector<Write> again = {InsertRequest{TestRequest("again", 0)}};
  REQUIRE(store.Commit(term, again, {}).ok());
  CHECK_FALSE(store.ReadResult("t1", "r0")->has_value());
  CHECK_FALSE((*store.FindRequest("t1", "again"))->result_expired);
}

TEST_CASE("Store: a leader that was replaced purges nothing", "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = harness->store().TakeLeadership()->term;
  PutDone(harness->store(), term, 1, /*done_at=*/50);
  REQUIRE(harness->store().TakeLeadership().ok());
  PurgePass pass{.what = {.done_before = 100}};
  CHECK(absl::IsFailedPrecondition(harness->store().PurgePiece(term, pass)));
  CHECK(CountResults(harness->store(), 1) == 1);
}

TEST_CASE("Store: a removed result is gone, and its request is not loaded for its failure",
          "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  ModelRow model = TestModel("s1:train:0");
  model.closed_seq = model.gradient_from_seq = model.log_from_seq = 10;
  std::vector<Write> writes = {PutSession{TestSession("s1")}, PutModel{model}};
  int64_t seq = 0;
  for (const char* id : {"a", "b"}) {
    writes.push_back(InsertRequest{TestRequest(id, ++seq)});
    CompleteRequest complete{id, RequestState::kFailed, "x", /*done_at=*/int64_t{1} << 62};
    complete.result_bytes = 6;
    writes.push_back(complete);
  }
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store.Commit(term, writes, blobs).ok());
  const std::vector<Write> drop = {DropResult{"a"}};
  REQUIRE(store.Commit(term, drop, {}).ok());
  harness->Reopen();
  CHECK_FALSE(harness->store().ReadResult("t1", "a")->has_value());
  CHECK((*harness->store().FindRequest("t1", "a"))->result_expired);
  CHECK(harness->store().ReadResult("t1", "b")->has_value());
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state->requests.size() == 1);
  CHECK(state->requests[0].request_id == "b");
  CHECK(state->requests[0].result_bytes == 6);
}

TEST_CASE("Store: results that nobody has fetched are loaded after the end of their session",
          "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  std::vector<Write> writes;
  for (int64_t i = 1; i <= 2; ++i) {
    const std::string id = absl::StrCat("r", i);
    writes.push_back(InsertRequest{TestRequest(id, i)});
    CompleteRequest complete{id, RequestState::kDone, "x", /*done_at=*/50};
    complete.result_bytes = i;
    writes.push_back(complete);
  }
  writes.push_back(MarkDelivered{"r1", 60});
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store.Commit(term, writes, blobs).ok());
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state->requests.size() == 1);
  CHECK(state->requests[0].request_id == "r2");
  CHECK(state->requests[0].result_bytes == 2);
  PurgeAll(harness->store(), state->term, {.done_before = 100});
  CHECK(harness->store().TakeLeadership()->requests.empty());
}

TEST_CASE("Store: limits of a tenant are kept, also those that have a default", "[store]") {
  auto harness = MakeStoreHarness();
  QuotaRow row;
  row.tenant_id = "t1";
  row.adapters = 3;
  row.samplers = 4;
  row.unfetched_bytes = 0;
  CommitAsLeader(harness->store(), {PutQuota{row}});
  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state->quotas.size() == 1);
  CHECK(state->quotas[0].adapters == 3);
  CHECK(state->quotas[0].sessions == kDefaultLimit);
  CHECK(state->quotas[0].samplers == 4);
  CHECK(state->quotas[0].unfetched_results == kDefaultLimit);
  CHECK(state->quotas[0].unfetched_bytes == 0);
}

}  // namespace
}  // namespace lathe::engine
