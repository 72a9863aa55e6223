#include "services/engine/runtime/purger.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_rows.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

TEST_CASE("Purger: results end in the background while commits go on", "[runtime]") {
  constexpr int kCount = 2'000;
  TempDir dir;
  auto store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  const int64_t term = store->TakeLeadership()->term;
  std::vector<Write> writes;
  for (int i = 0; i < kCount; ++i) {
    const std::string id = "r" + std::to_string(i);
    writes.push_back(InsertRequest{TestRequest(id, i)});
    writes.push_back(CompleteRequest{id, RequestState::kDone, "x", 50});
  }
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store->Commit(term, writes, blobs).ok());
  Purger purger(*store, term);
  purger.Start({.done_before = 100});
  const std::string last = "r" + std::to_string(kCount - 1);
  int num_commits = 0;
  while (store->ReadResult("t1", last)->has_value()) {
    const std::vector<Write> one = {PutSession{TestSession("s" + std::to_string(num_commits++))}};
    REQUIRE(store->Commit(term, one, {}).ok());
  }
  CHECK(num_commits > 0);
  CHECK(store->ListSessions("t1", 1, 0)->total_count == num_commits);
}

TEST_CASE("Purger: a purge that fails leaves the next one a chance", "[runtime]") {
  TempDir dir;
  auto store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  const int64_t term = store->TakeLeadership()->term;
  const std::vector<Write> writes = {InsertRequest{TestRequest("r", 1)},
                                     CompleteRequest{"r", RequestState::kDone, "x", 50}};
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store->Commit(term, writes, blobs).ok());
  {
    Purger old(*store, term - 1);
    old.Start({.done_before = 100});
  }
  CHECK(store->ReadResult("t1", "r")->has_value());
  Purger purger(*store, term);
  purger.Start({.done_before = 100});
  while (store->ReadResult("t1", "r")->has_value()) std::this_thread::yield();
}

}  // namespace
}  // namespace lathe::engine
