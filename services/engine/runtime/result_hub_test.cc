#include "services/engine/runtime/result_hub.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_rows.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct ResultHubFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  int64_t term = store->TakeLeadership()->term;
  Results results{1 << 20};
  ResultHub hub{*store, results};
  std::vector<WaitEnd> ends;

  ResultHub::Callback Record() {
    return [this](WaitEnd end) { ends.push_back(end); };
  }

  void Accept() {
    const std::vector<Write> writes = {InsertRequest{TestRequest("r1", 1)}};
    REQUIRE(store->Commit(term, writes, {}).ok());
    hub.OnAccepted(TestRequest("r1", 1));
  }

  void Finish(const std::string& bytes) {
    const std::vector<Write> writes = {CompleteRequest{"r1", RequestState::kDone, "x", 5}};
    const std::vector<Blob> blobs = {{"x", bytes}};
    REQUIRE(store->Commit(term, writes, blobs).ok());
    results.HoldAs("x", bytes);
    results.Finish("x", "r1");
    hub.NotifyDone("r1");
  }
};

TEST_CASE("ResultHub: a waiter is notified once, when the result can be read", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  REQUIRE(f.hub.Wait("t1", "r1", f.Record()).ok());
  CHECK(*f.hub.Find("t1", "r1") == nullptr);
  CHECK(f.ends.empty());
  f.Finish("bytes");
  CHECK(f.ends == std::vector<WaitEnd>{WaitEnd::kDone});
  CHECK(**f.hub.Find("t1", "r1") == "bytes");
  CHECK(f.hub.Wait("t1", "r1", f.Record()).status().code() == absl::StatusCode::kAlreadyExists);
}

TEST_CASE("ResultHub: a request belongs to one tenant, pending or finished", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  CHECK(f.hub.Find("t2", "r1").status().code() == absl::StatusCode::kNotFound);
  CHECK(f.hub.Wait("t2", "r1", f.Record()).status().code() == absl::StatusCode::kNotFound);
  f.Finish("bytes");
  CHECK(f.hub.Find("t2", "r1").status().code() == absl::StatusCode::kNotFound);
  CHECK(f.hub.Find("t1", "r2").status() == f.hub.Find("t2", "r2").status());
}

TEST_CASE("ResultHub: a tenant never sees a request that is accepted meanwhile", "[runtime]") {
  ResultHubFixture f;
  constexpr int kRequests = 10000;
  std::atomic<int> asked = 0;
  std::thread accepting([&] {
    for (int i = 0; i < kRequests; ++i) {
      while (asked < i) std::this_thread::yield();
      f.hub.OnAccepted(TestRequest(absl::StrCat("q", i), i));
    }
  });
  int num_seen = 0;
  for (int i = 0; i < kRequests; ++i) {
    const std::string id = absl::StrCat("q", i);
    asked = i;
    while (f.hub.Find("t1", id).status().code() == absl::StatusCode::kNotFound) {
      num_seen += f.hub.Find("t2", id).ok() ? 1 : 0;
    }
  }
  accepting.join();
  CHECK(num_seen == 0);
}

TEST_CASE("ResultHub: a result that left memory comes from the store", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  f.Finish("bytes");
  Results empty(1);
  ResultHub restarted(*f.store, empty);
  CHECK(**restarted.Find("t1", "r1") == "bytes");
  CHECK(restarted.Find("t2", "r1").status().code() == absl::StatusCode::kNotFound);
  PurgePass purge{.what = {.done_before = 6}};
  REQUIRE(f.store->PurgePiece(f.term, purge).ok());
  const absl::Status expired = restarted.Find("t1", "r1").status();
  CHECK(expired.code() == absl::StatusCode::kOutOfRange);
  CHECK(ErrorCode(expired) == "result_expired");
}

TEST_CASE("ResultHub: a cancelled waiter gets no notification", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  const ResultHub::Waiting waiting = *f.hub.Wait("t1", "r1", f.Record());
  f.hub.Cancel("r1", waiting.wait_id);
  f.Finish("bytes");
  CHECK(f.ends.empty());
}

TEST_CASE("ResultHub: a request has the state of its own group", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  f.hub.SetGroup("r1", "g1");
  f.hub.SetQueueState("g1", {.paused = true, .reason = "loading"});
  const ResultHub::Waiting waiting = *f.hub.Wait("t1", "r1", f.Record());
  CHECK(waiting.queue.paused);
  CHECK(waiting.queue.reason == "loading");
  f.hub.SetQueueState("g2", {.paused = true, .reason = "gone"});
  CHECK(f.hub.Queue("r1").reason == "loading");
  f.hub.SetQueueState("g1", {});
  CHECK_FALSE(f.hub.Queue("r1").paused);
}

TEST_CASE("ResultHub: a request has the state of the group that it goes to", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  f.hub.SetQueueState("", {.paused = true, .reason = "no group"});
  f.hub.SetQueueState("g2", {.paused = true, .reason = "loading"});
  CHECK(f.hub.Queue("r1").reason == "no group");
  f.hub.SetGroup("r1", "g2");
  CHECK(f.hub.Queue("r1").reason == "loading");
  f.hub.SetGroup("r1", "g1");
  CHECK_FALSE(f.hub.Queue("r1").paused);
}

TEST_CASE("ResultHub: a group's state and a request's group call no waiter", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  REQUIRE(f.hub.Wait("t1", "r1", f.Record()).ok());
  f.hub.SetGroup("r1", "g1");
  f.hub.SetQueueState("g1", {.paused = true, .reason = "loading"});
  CHECK(f.ends.empty());
  f.Finish("bytes");
  CHECK(f.ends == std::vector<WaitEnd>{WaitEnd::kDone});
}

TEST_CASE("ResultHub: unfinished requests are counted by owner", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  const std::string owner = TestRequest("r1", 1).owner_id;
  const std::string tenant = TestRequest("r1", 1).tenant_id;
  CHECK(f.hub.NumPending() == 1);
  CHECK(f.hub.NumPendingOf(tenant, owner) == 1);
  CHECK(f.hub.NumPendingOf(tenant, "other") == 0);
  CHECK(f.hub.NumPendingOf("other", owner) == 0);
  CHECK(f.hub.NumPendingByOwner(tenant) == std::unordered_map<std::string, int64_t>{{owner, 1}});
  f.Finish("bytes");
  CHECK(f.hub.NumPending() == 0);
  CHECK(f.hub.NumPendingOf(tenant, owner) == 0);
  CHECK(f.hub.NumPendingByOwner(tenant).empty());
}

TEST_CASE("ResultHub: the first delivery is seen once", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  f.Finish("bytes");
  CHECK_FALSE(f.hub.MarkDelivered("t2", "r1"));
  CHECK(f.hub.MarkDelivered("t1", "r1"));
  CHECK_FALSE(f.hub.MarkDelivered("t1", "r1"));
}

TEST_CASE("ResultHub: a stopping engine releases all waiters", "[runtime]") {
  ResultHubFixture f;
  f.Accept();
  REQUIRE(f.hub.Wait("t1", "r1", f.Record()).ok());
  f.hub.ReleaseAll();
  CHECK(f.ends == std::vector<WaitEnd>{WaitEnd::kReleased});
  CHECK(f.hub.Wait("t1", "r1", f.Record()).status().code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lathe::engine
