#include "services/engine/runtime/series_heads.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "services/engine/series/metric_names.h"
#include "services/engine/series/run_series.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

PointEntry UserEntry(const std::vector<NamedPoint>& points, const std::string& run = "s:train:0") {
  return {
      .run_id = run, .tenant_id = "t1", .kind = EntryKind::kUsers, .unix_ms = 0, .points = points};
}

struct HeadsOfTest {
  explicit HeadsOfTest(const SeriesOptions& options = {})
      : store(*SqliteStore::Open(
            {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"})),
        book(*store),
        heads(*store, book, options) {
    REQUIRE(store->TakeLeadership().ok());
    book.Load();
  }

  // Appends the points; returns how many of them were new, or the word of the error.
  std::string Append(const std::vector<NamedPoint>& points) {
    if (absl::Status status = Enqueue(points); !status.ok()) return ErrorCode(status);
    const PointEntryPtr entry = queue.back();
    queue.pop_back();
    if (!entry->points.empty()) book.OnDurable(++last_id, {entry});
    heads.Release(entry);
    return absl::StrCat(entry->points.size());
  }

  absl::Status Enqueue(const std::vector<NamedPoint>& points) {
    return heads.Append(UserEntry(points), [this](const PointEntryPtr& entry) {
      queue.push_back(entry);
      return absl::OkStatus();
    });
  }

  TempDir dir;
  std::unique_ptr<SqliteStore> store;
  SeriesBook book;
  SeriesHeads heads;
  int64_t last_id = 0;
  std::vector<PointEntryPtr> queue;  // points that are on their way
};

TEST_CASE("SeriesHeads: steps grow, the newest may be replaced", "[series]") {
  HeadsOfTest test;
  CHECK(test.Append({{.name = "reward", .value = 1, .step = 3}}) == "1");
  CHECK(test.Append({{.name = "reward", .value = 2, .step = 3}}) == "1");
  CHECK(test.Append({{.name = "reward", .value = 2, .step = 2}}) == "bad_step");
  CHECK(test.Append({{.name = "other", .value = 2, .step = 2}}) == "1");
  CHECK(test.Append({{.name = "a", .value = 1, .step = 2}, {.name = "a", .value = 1, .step = 1}}) ==
        "bad_step");
  // A refused call reserves nothing.
  CHECK(test.Append({{.name = "a", .value = 1, .step = 0}}) == "1");
}

TEST_CASE("SeriesHeads: a repeated call is accepted and stores nothing twice", "[series]") {
  HeadsOfTest test;
  const std::vector<NamedPoint> call = {{.name = "reward", .value = 1, .step = 1},
                                        {.name = "reward", .value = 2, .step = 2},
                                        {.name = "reward", .value = 3, .step = 3}};
  CHECK(test.Append(call) == "3");
  // The newest point replaces itself.
  CHECK(test.Append(call) == "1");
  CHECK(test.Append({{.name = "reward", .value = 1.5, .step = 1}}) == "bad_step");

  // The same once the points are in the store.
  RunSeries run({.run_id = "s:train:0", .tenant_id = "t1"});
  for (const RunBatch& batch : test.book.PendingOf("s:train:0")) run.Apply(batch, 500);
  SeriesFold fold;
  fold.series = run.TakeChanged();
  fold.run = run.row();
  const std::vector<SeriesFold> folds = {fold};
  REQUIRE(test.store->WriteSeries(folds).ok());
  SeriesBook book(*test.store);
  book.Load();
  SeriesHeads heads(*test.store, book, {});
  size_t num_new = 0;
  CHECK(heads
            .Append(UserEntry(call),
                    [&](const PointEntryPtr& entry) {
                      num_new = entry->points.size();
                      return absl::OkStatus();
                    })
            .ok());
  CHECK(num_new == 1);
}

TEST_CASE("SeriesHeads: a repetition of a call that is on its way is accepted", "[series]") {
  HeadsOfTest test;
  const std::vector<NamedPoint> call = {{.name = "reward", .value = 1, .step = 1},
                                        {.name = "reward", .value = 2, .step = 2}};
  REQUIRE(test.Enqueue(call).ok());
  REQUIRE(test.Enqueue(call).ok());
  CHECK(test.queue[1]->points.size() == 1);
}

TEST_CASE("SeriesHeads: a call that is not taken changes nothing, others stay on their way",
          "[series]") {
  HeadsOfTest test;
  REQUIRE(test.Enqueue({{.name = "reward", .value = 1, .step = 3}}).ok());
  CHECK(test.heads
            .Append(UserEntry({{.name = "reward", .value = 1, .step = 5}}),
                    [](const PointEntryPtr&) { return absl::ResourceExhaustedError("full"); })
            .code() == absl::StatusCode::kResourceExhausted);
  // The points on their way are not in the book, and known nevertheless.
  CHECK(test.Append({{.name = "reward", .value = 1, .step = 2}}) == "bad_step");
  CHECK(test.Append({{.name = "reward", .value = 1, .step = 4}}) == "1");
}

TEST_CASE("SeriesHeads: points of parallel calls are on their way in the order of their steps",
          "[series]") {
  HeadsOfTest test;
  std::atomic<int64_t> next_step = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (next_step < 2000) {
          (void)test.Enqueue({{.name = "reward", .value = 1, .step = next_step++}});
        }
      });
    }
  }
  REQUIRE(test.queue.size() > 1);
  int64_t last_step = -1;
  for (const PointEntryPtr& entry : test.queue) {
    if (entry->points.empty()) continue;
    CHECK(entry->points.front().step > last_step);
    last_step = entry->points.front().step;
  }
}

TEST_CASE("SeriesHeads: names of results and too many names are refused", "[series]") {
  HeadsOfTest test;
  auto result = std::make_shared<PointEntry>(UserEntry({{.name = "loss:sum", .value = 1}}));
  result->kind = EntryKind::kResult;
  test.book.OnDurable(++test.last_id, {result});
  CHECK(test.Append({{.name = "loss:sum", .value = 1, .step = 1}}) == "reserved_metric");
  // Also those that come after the run's first call.
  auto later = std::make_shared<PointEntry>(UserEntry({{.name = "norm", .value = 1}}));
  later->kind = EntryKind::kOptimStep;
  test.book.OnDurable(++test.last_id, {later});
  CHECK(test.Append({{.name = "norm", .value = 1, .step = 1}}) == "reserved_metric");
  for (int64_t i = 0; i < kMaxUserSeriesPerRun; ++i) {
    REQUIRE(test.Append({{.name = absl::StrCat("n", i), .value = 1, .step = 1}}) == "1");
  }
  CHECK(test.Append({{.name = "one_more", .value = 1, .step = 1}}) == "too_many_metrics");
  CHECK(test.Append({{.name = "n7", .value = 1, .step = 2}}) == "1");
}

TEST_CASE("SeriesHeads: names of a program leave room for those of results", "[series]") {
  HeadsOfTest test;
  std::vector<NamedPoint> all;
  for (int64_t i = 0; i < kMaxUserSeriesPerRun; ++i) {
    all.push_back({.name = absl::StrCat("n", i), .value = 1, .step = 1});
  }
  REQUIRE(test.Append(all) == absl::StrCat(kMaxUserSeriesPerRun));
  auto result = std::make_shared<PointEntry>(UserEntry({{.name = "loss:sum", .value = 1}}));
  result->kind = EntryKind::kResult;
  test.book.OnDurable(++test.last_id, {result});
  RunSeries run({.run_id = "s:train:0", .tenant_id = "t1"});
  for (const RunBatch& batch : test.book.PendingOf("s:train:0")) run.Apply(batch, kMaxSeriesPerRun);
  CHECK(run.series().contains("loss:sum"));
}

TEST_CASE("SeriesHeads: a tenant without room may not name new metrics", "[series]") {
  SeriesOptions options;
  options.max_series_per_tenant = 1;
  HeadsOfTest test(options);
  CHECK(test.Append({{.name = "a", .value = 1, .step = 1}, {.name = "b", .value = 1, .step = 1}}) ==
        "too_many_metrics");
  CHECK(test.Append({{.name = "a", .value = 1, .step = 1}}) == "1");
}

}  // namespace
}  // namespace lathe::engine
