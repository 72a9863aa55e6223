#include "services/engine/runtime/sample_completions.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

constexpr int64_t kTerm = 3;
const CompletionQueueId kQueue = {"t1", "s1", 0};

RequestRow Sample(const std::string& id, int64_t seq_id, const std::string& owner = "s1") {
  RequestRow row;
  row.request_id = id;
  row.tenant_id = "t1";
  row.owner_id = owner;
  row.op_class = OpClass::kSample;
  row.seq_id = seq_id;
  return row;
}

CompleteRequest Completed(const std::string& id, int64_t count, int64_t done_at = 5) {
  return {id, RequestState::kDone, "x", done_at, CompletionNumber(kTerm, count)};
}

std::vector<std::string> Ids(const SampleCompletions::Batch& batch) {
  std::vector<std::string> ids;
  for (const SampleCompletion& one : batch.completions) ids.push_back(one.request_id);
  return ids;
}

using Strings = std::vector<std::string>;

// Three samples of one queue. The first two have ended, in reverse order.
struct CompletionsFixture {
  SampleCompletions completions;

  CompletionsFixture() {
    completions.Load({}, kTerm);
    for (int i = 1; i <= 3; ++i) completions.OnAccepted(Sample("r" + std::to_string(i), i));
    completions.OnCompleted(Completed("r2", 1), 100);
    CompleteRequest failed = Completed("r1", 2);
    failed.state = RequestState::kFailed;
    completions.OnCompleted(failed, 7);
  }
};

TEST_CASE("SampleCompletions: samples that ended after a cursor are listed in order", "[runtime]") {
  CompletionsFixture f;
  const SampleCompletions::Batch all = f.completions.Take(kQueue, 0);
  CHECK(Ids(all) == Strings{"r2", "r1"});
  CHECK_FALSE(all.completions[0].failed);
  CHECK(all.completions[0].result_bytes == 100);
  CHECK(all.completions[1].failed);
  CHECK(all.cursor == CompletionNumber(kTerm, 2));
  // A client may ask again, because the answer may have been lost.
  CHECK(Ids(f.completions.Take(kQueue, 0)) == Strings{"r2", "r1"});
  CHECK(Ids(f.completions.Take(kQueue, CompletionNumber(kTerm, 1))) == Strings{"r1"});
  const SampleCompletions::Batch none = f.completions.Take(kQueue, all.cursor);
  CHECK(none.completions.empty());
  CHECK(none.cursor == all.cursor);
}

TEST_CASE("SampleCompletions: each tenant, session and clone has its own", "[runtime]") {
  CompletionsFixture f;
  CHECK(f.completions.Take({"t2", "s1", 0}, 0).completions.empty());
  CHECK(f.completions.Take({"t1", "s2", 0}, 0).completions.empty());
  CHECK(f.completions.Take({"t1", "s1", 1}, 0).completions.empty());
  f.completions.OnAccepted(Sample("c", 7 * CompletionQueueId::kSeqsPerClone + 1));
  f.completions.OnCompleted(Completed("c", 3), 1);
  CHECK(Ids(f.completions.Take({"t1", "s1", 7}, 0)) == Strings{"c"});
  CHECK(Ids(f.completions.Take(kQueue, 0)) == Strings{"r2", "r1"});
}

TEST_CASE("SampleCompletions: a waiter is called once when its queue grows", "[runtime]") {
  CompletionsFixture f;
  int num_calls = 0;
  const auto count = [&] { ++num_calls; };
  CHECK(f.completions.Wait(kQueue, 0, count) == 0);
  const int64_t cursor = f.completions.Take(kQueue, 0).cursor;
  CHECK(f.completions.Wait(kQueue, cursor, count) != 0);
  const uint64_t cancelled = f.completions.Wait(kQueue, cursor, count);
  f.completions.Cancel(kQueue, cancelled);
  f.completions.OnAccepted(Sample("other", 1, "s2"));
  f.completions.OnCompleted(Completed("other", 3), 1);
  f.completions.WakeWaiters();
  CHECK(num_calls == 0);
  f.completions.OnCompleted(Completed("r3", 4), 1);
  f.completions.WakeWaiters();
  f.completions.WakeWaiters();
  CHECK(num_calls == 1);
  CHECK(Ids(f.completions.Take(kQueue, cursor)) == Strings{"r3"});
}

TEST_CASE("SampleCompletions: a wait for an unknown queue is woken by its first", "[runtime]") {
  SampleCompletions completions;
  completions.Load({}, kTerm);
  int num_calls = 0;
  REQUIRE(completions.Wait(kQueue, 0, [&] { ++num_calls; }) != 0);
  completions.OnAccepted(Sample("r1", 1));
  completions.OnCompleted(Completed("r1", 1), 1);
  completions.WakeWaiters();
  CHECK(num_calls == 1);
}

TEST_CASE("SampleCompletions: a stopping engine ends all waits", "[runtime]") {
  SampleCompletions completions;
  int num_calls = 0;
  REQUIRE(completions.Wait(kQueue, 0, [&] { ++num_calls; }) != 0);
  completions.ReleaseAll();
  CHECK(num_calls == 1);
  CHECK(completions.Wait(kQueue, 0, [] {}) == 0);
}

TEST_CASE("SampleCompletions: delivered samples are not listed any more", "[runtime]") {
  CompletionsFixture f;
  f.completions.OnDelivered("r2");
  f.completions.OnDelivered("r3");  // not complete, so this has no effect
  CHECK(Ids(f.completions.Take(kQueue, 0)) == Strings{"r1"});
  f.completions.OnCompleted(Completed("r3", 3), 1);
  CHECK(Ids(f.completions.Take(kQueue, 0)) == Strings{"r1", "r3"});
}

TEST_CASE("SampleCompletions: a result that expired is not listed any more", "[runtime]") {
  CompletionsFixture f;
  f.completions.OnCompleted(Completed("r3", 3, /*done_at=*/6), 1);
  f.completions.ForgetBefore(6);
  CHECK(Ids(f.completions.Take(kQueue, 0)) == Strings{"r3"});
}

TEST_CASE("SampleCompletions: another leader's are listed, and a cursor of then goes on",
          "[runtime]") {
  SampleCompletions completions;
  const std::vector<CompletionRow> rows = {
      {CompletionNumber(2, 1), "a", "t1", "s1", 1, RequestState::kDone, 5, 10},
      {CompletionNumber(2, 9), "b", "t1", "s1", 2, RequestState::kFailed, 5, 0}};
  completions.Load(rows, kTerm);
  CHECK(Ids(completions.Take(kQueue, CompletionNumber(2, 1))) == Strings{"b"});
  // The client had received all of them, and later ones that are delivered.
  const int64_t cursor = CompletionNumber(2, 40);
  completions.OnAccepted(Sample("r1", 3));
  completions.OnCompleted(Completed("r1", 1), 1);
  CHECK(Ids(completions.Take(kQueue, cursor)) == Strings{"r1"});
}

TEST_CASE("SampleCompletions: a cursor of another store misses nothing", "[runtime]") {
  CompletionsFixture f;
  const int64_t cursor = CompletionNumber(kTerm + 1, 0);
  CHECK(f.completions.Wait(kQueue, cursor, [] {}) == 0);
  const SampleCompletions::Batch batch = f.completions.Take(kQueue, cursor);
  CHECK(Ids(batch) == Strings{"r2", "r1"});
  CHECK(batch.cursor == CompletionNumber(kTerm, 2));
}

TEST_CASE("SampleCompletions: one answer has a bound, the next goes on behind it", "[runtime]") {
  SampleCompletions completions;
  completions.Load({}, kTerm);
  const auto max = static_cast<int64_t>(SampleCompletions::kMaxBatch);
  for (int64_t i = 1; i <= max + 1; ++i) {
    const std::string id = "r" + std::to_string(i);
    completions.OnAccepted(Sample(id, i));
    completions.OnCompleted(Completed(id, i), 1);
  }
  const SampleCompletions::Batch first = completions.Take(kQueue, 0);
  CHECK(first.completions.size() == SampleCompletions::kMaxBatch);
  CHECK(Ids(completions.Take(kQueue, first.cursor)) == Strings{"r" + std::to_string(max + 1)});
}

}  // namespace
}  // namespace lathe::engine
