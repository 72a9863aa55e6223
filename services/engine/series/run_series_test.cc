#include "services/engine/series/run_series.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/series/chunk.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {
namespace {

RunSeries EmptyRun() { return RunSeries({.run_id = "r", .tenant_id = "t"}); }

PointEntryPtr Result(EntryKind kind, const std::string& name, double value) {
  return std::make_shared<PointEntry>(PointEntry{.run_id = "r",
                                                 .tenant_id = "t",
                                                 .kind = kind,
                                                 .unix_ms = 1,
                                                 .points = {{.name = name, .value = value}}});
}

PointEntryPtr User(const std::string& name, int64_t step, double value) {
  return std::make_shared<PointEntry>(
      PointEntry{.run_id = "r",
                 .tenant_id = "t",
                 .kind = EntryKind::kUsers,
                 .points = {{.name = name, .value = value, .step = step, .unix_ms = step}}});
}

RunBatch Batch(int64_t id, std::vector<PointEntryPtr> entries) {
  return {.journal_id = id, .entries = std::move(entries)};
}

const Series& Find(const RunSeries& run, const std::string& name) { return run.series().at(name); }

TEST_CASE("RunSeries: results belong to the step that the next optim_step ends", "[series]") {
  RunSeries run = EmptyRun();
  run.Apply(Batch(1, {Result(EntryKind::kResult, "loss", 3), Result(EntryKind::kResult, "loss", 4),
                      Result(EntryKind::kOptimStep, "grad_norm", 1)}),
            kMaxSeriesPerRun);
  run.Apply(Batch(2, {Result(EntryKind::kResult, "loss", 5)}), kMaxSeriesPerRun);
  const Series& loss = Find(run, "loss");
  CHECK(loss.tail == std::vector<Point>{{.step = 0, .unix_ms = 1, .value = 3},
                                        {.step = 0, .unix_ms = 1, .value = 4},
                                        {.step = 1, .unix_ms = 1, .value = 5}});
  CHECK(loss.row.num_points == 3);
  CHECK(Find(run, "grad_norm").row.last_step == 0);
  CHECK(run.row().num_steps == 1);
  CHECK(run.row().num_series == 2);
}

TEST_CASE("RunSeries: a batch that comes twice changes nothing", "[series]") {
  RunSeries run = EmptyRun();
  const RunBatch batch =
      Batch(7, {Result(EntryKind::kResult, "loss", 3), Result(EntryKind::kOptimStep, "norm", 1),
                Result(EntryKind::kCounts, "sample/tokens", 10)});
  run.Apply(batch, kMaxSeriesPerRun);
  run.Apply(batch, kMaxSeriesPerRun);
  CHECK(Find(run, "loss").row.num_points == 1);
  CHECK(Find(run, "sample/tokens").row.last_value == 10);
  CHECK(run.row().num_steps == 1);

  // A series that a later fold has written knows the batch, even if the run's row does not.
  RunSeries again(RunSeriesRow{.run_id = "r", .tenant_id = "t"});
  SeriesRow row = Find(run, "loss").row;
  row.tail = PackPoints(Find(run, "loss").tail);
  REQUIRE(again.Add(row).ok());
  again.Apply(batch, kMaxSeriesPerRun);
  CHECK(Find(again, "loss").row.num_points == 1);
}

TEST_CASE("RunSeries: counts add up, with one point for each step", "[series]") {
  RunSeries run = EmptyRun();
  for (int i = 1; i <= 3; ++i) {
    run.Apply(Batch(i, {Result(EntryKind::kCounts, "sample/tokens", 10)}), kMaxSeriesPerRun);
  }
  run.Apply(Batch(4, {Result(EntryKind::kOptimStep, "norm", 1),
                      Result(EntryKind::kCounts, "sample/tokens", 5)}),
            kMaxSeriesPerRun);
  const Series& tokens = Find(run, "sample/tokens");
  CHECK(tokens.tail == std::vector<Point>{{.step = 0, .unix_ms = 1, .value = 30},
                                          {.step = 1, .unix_ms = 1, .value = 35}});
  CHECK(tokens.row.unit == "tokens");
}

TEST_CASE("RunSeries: a user's newest step is replaced, an older one is dropped", "[series]") {
  RunSeries run = EmptyRun();
  CHECK(run.Apply(Batch(1, {User("reward", 4, 1), User("reward", 4, 2), User("reward", 3, 9)}),
                  kMaxSeriesPerRun)
            .num_dropped == 1);
  const Series& reward = Find(run, "reward");
  CHECK(reward.tail == std::vector<Point>{{.step = 4, .unix_ms = 4, .value = 2}});
  CHECK(reward.row.num_points == 1);
  CHECK(reward.row.source == SeriesSource::kUsers);
}

TEST_CASE("RunSeries: no user's point gets into a series of results", "[series]") {
  RunSeries run = EmptyRun();
  run.Apply(Batch(1, {Result(EntryKind::kResult, "loss", 1)}), kMaxSeriesPerRun);
  CHECK(run.Apply(Batch(2, {User("loss", 5, 100)}), kMaxSeriesPerRun).num_dropped == 1);
  CHECK(Find(run, "loss").row.last_value == 1);
}

TEST_CASE("RunSeries: bad names, values and too many series are dropped and counted", "[series]") {
  RunSeries run = EmptyRun();
  const auto dropped = [&run](int64_t id, const std::string& name, double value) {
    return run.Apply(Batch(id, {Result(EntryKind::kResult, name, value)}), kMaxSeriesPerRun)
        .num_dropped;
  };
  CHECK(dropped(1, "<b>", 1) == 1);
  CHECK(dropped(2, "nan", std::nan("")) == 1);
  CHECK(dropped(3, "inf", std::numeric_limits<double>::infinity()) == 1);
  for (int64_t i = run.row().num_series; i < kMaxSeriesPerRun; ++i) {
    CHECK(dropped(10 + i, absl::StrCat("n", i), 1) == 0);
  }
  CHECK(dropped(1000, "one_more", 1) == 1);
  CHECK(dropped(1001, "n100", 1) == 0);
  CHECK(run.row().num_series == kMaxSeriesPerRun);
}

TEST_CASE("RunSeries: full chunks leave the tail, and the newest point stays", "[series]") {
  RunSeries run = EmptyRun();
  for (int64_t i = 1; i <= 2 * kChunkPoints; ++i) {
    run.Apply(Batch(i, {User("reward", i, static_cast<double>(i))}), kMaxSeriesPerRun);
  }
  const std::vector<SeriesChunkRow> chunks = run.Seal();
  REQUIRE(chunks.size() == 1);
  CHECK(chunks[0].number == 0);
  CHECK(chunks[0].first_step == 1);
  CHECK(chunks[0].last_step == kChunkPoints);
  CHECK(UnpackPoints(chunks[0].bytes)->size() == kChunkPoints);
  CHECK(Find(run, "reward").tail.size() == kChunkPoints);
  run.Apply(Batch(5000, {User("reward", 2 * kChunkPoints, 7)}), kMaxSeriesPerRun);
  CHECK(run.Seal().empty());
  run.Apply(Batch(5001, {User("reward", 5000, 8)}), kMaxSeriesPerRun);
  const std::vector<SeriesChunkRow> next = run.Seal();
  REQUIRE(next.size() == 1);
  CHECK(next[0].number == 1);
  CHECK(UnpackPoints(next[0].bytes)->back().value == 7);
  CHECK(Find(run, "reward").row.num_sealed == 2 * kChunkPoints);
  CHECK(Find(run, "reward").row.num_points == 2 * kChunkPoints + 1);
}

TEST_CASE("RunSeries: changed rows have their tails once", "[series]") {
  RunSeries run = EmptyRun();
  run.Apply(Batch(3, {User("reward", 1, 2)}), kMaxSeriesPerRun);
  const std::vector<SeriesRow> rows = run.TakeChanged();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].folded_through == 3);
  CHECK(UnpackPoints(rows[0].tail)->at(0).value == 2);
  CHECK(run.TakeChanged().empty());
}

}  // namespace
}  // namespace lathe::engine
