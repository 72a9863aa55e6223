// Promises of every store about kept metrics: the journal, folds, reads and the end of old runs.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

constexpr int64_t kFirstStep = std::numeric_limits<int64_t>::min();
constexpr int64_t kLastStep = std::numeric_limits<int64_t>::max();
const std::string kSeriesRun = "s1:train:0";

SeriesRow TestSeries(const std::string& name, int64_t folded_through = 1) {
  SeriesRow row;
  row.run_id = kSeriesRun;
  row.name = name;
  row.unit = "s";
  row.source = SeriesSource::kUsers;
  row.folded_through = folded_through;
  row.num_points = 7;
  row.last_step = -3;
  row.last_value = 0.1;
  row.last_ms = 1'700'000'000'123;
  row.tail = std::string("\0tail\xff", 6);
  return row;
}

SeriesChunkRow TestChunk(int64_t level, int64_t number) {
  SeriesChunkRow row;
  row.run_id = kSeriesRun;
  row.name = "loss";
  row.level = level;
  row.number = number;
  row.first_step = number * 10;
  row.last_step = number * 10 + 9;
  row.num_buckets = 512;
  row.bytes = absl::StrCat("chunk", level, "-", number);
  return row;
}

SeriesFold TestFold(int64_t through, const std::string& run = kSeriesRun, int64_t last_at = 5) {
  SeriesFold fold;
  fold.run.run_id = run;
  fold.run.tenant_id = "t1";
  fold.run.num_steps = 4;
  fold.run.folded_through = through;
  fold.run.num_series = 2;
  fold.run.last_at = last_at;
  return fold;
}

absl::Status WriteFold(Store& store, const SeriesFold& fold) {
  const std::vector<SeriesFold> folds = {fold};
  return store.WriteSeries(folds);
}

std::vector<int64_t> NumbersOf(Store& store, int64_t level, const ChunkRange& range) {
  std::vector<int64_t> numbers;
  const auto chunks = store.ReadSeriesChunks(kSeriesRun, "loss", level, range);
  REQUIRE(chunks.ok());
  for (const SeriesChunkRow& chunk : *chunks) {
    CHECK(chunk.bytes == TestChunk(level, chunk.number).bytes);
    numbers.push_back(chunk.number);
  }
  return numbers;
}

TEST_CASE("Store: batches of points survive in the order of their ids until they are trimmed",
          "[store]") {
  auto harness = MakeStoreHarness();
  const int64_t term = harness->store().TakeLeadership()->term;
  const std::string first = std::string("\0one\xff", 5);
  const std::vector<Write> writes = {AppendPoints{1, first}, PutSession{TestSession("s1")},
                                     AppendPoints{2, "two"}};
  REQUIRE(harness->store().Commit(term, writes, {}).ok());
  harness->Reopen();
  Store& store = harness->store();
  const auto rows = store.ReadPointJournal(/*after=*/0, 10);
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 2);
  CHECK(rows->at(0).journal_id == 1);
  CHECK(rows->at(0).bytes == first);
  CHECK(rows->at(1).bytes == "two");
  CHECK(store.ReadPointJournal(0, 1)->at(0).journal_id == 1);
  CHECK(store.ReadPointJournal(0, 1)->size() == 1);
  CHECK(store.ReadPointJournal(1, 1)->at(0).journal_id == 2);
  CHECK(store.ReadPointJournal(2, 1)->empty());
  REQUIRE(store.TakeLeadership().ok());
  CHECK(store.TrimPointJournal(1, 10).value() == 1);
  REQUIRE(store.ReadPointJournal(0, 10)->size() == 1);
  CHECK(store.ReadPointJournal(0, 10)->at(0).journal_id == 2);
}

TEST_CASE("Store: the journal of points is trimmed in pieces, the oldest first", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  const std::vector<Write> writes = {AppendPoints{1, "a"}, AppendPoints{2, "b"},
                                     AppendPoints{3, "c"}, AppendPoints{4, "d"}};
  REQUIRE(store.Commit(term, writes, {}).ok());
  CHECK(store.TrimPointJournal(/*through=*/3, 2).value() == 2);
  CHECK(store.ReadPointJournal(0, 10)->front().journal_id == 3);
  CHECK(store.TrimPointJournal(3, 2).value() == 1);
  CHECK(store.TrimPointJournal(3, 2).value() == 0);
  CHECK(store.ReadPointJournal(0, 10)->front().journal_id == 4);
}

TEST_CASE("Store: a fold is read as it was written, and replaced by the next", "[store]") {
  auto harness = MakeStoreHarness();
  REQUIRE(harness->store().TakeLeadership().ok());
  SeriesFold fold = TestFold(1);
  fold.series = {TestSeries("loss"), TestSeries("reward")};
  fold.chunks = {TestChunk(0, 0)};
  REQUIRE(WriteFold(harness->store(), fold).ok());
  SeriesFold next = TestFold(2);
  next.series = {TestSeries("loss", 2)};
  next.series[0].last_value = 0.2;
  REQUIRE(WriteFold(harness->store(), next).ok());
  harness->Reopen();
  Store& store = harness->store();
  const auto run = store.FindRunSeries(kSeriesRun);
  REQUIRE(run.ok());
  REQUIRE(run->has_value());
  CHECK((*run)->tenant_id == "t1");
  CHECK((*run)->num_steps == 4);
  CHECK((*run)->folded_through == 2);
  CHECK((*run)->num_series == 2);
  CHECK_FALSE(store.FindRunSeries("absent")->has_value());
  const auto heads = store.ListSeries(kSeriesRun, /*with_tails=*/false);
  REQUIRE(heads->size() == 2);
  CHECK(heads->at(0).name == "loss");
  CHECK(heads->at(0).tail.empty());
  CHECK(heads->at(0).last_value == 0.2);
  CHECK(heads->at(1).folded_through == 1);
  CHECK(store.ListSeries(kSeriesRun, /*with_tails=*/true)->at(1).tail == TestSeries("reward").tail);
  const auto one = store.FindSeries(kSeriesRun, "reward");
  REQUIRE(one->has_value());
  CHECK((*one)->unit == "s");
  CHECK((*one)->source == SeriesSource::kUsers);
  CHECK((*one)->last_step == -3);
  CHECK((*one)->last_value == 0.1);
  CHECK((*one)->last_ms == 1'700'000'000'123);
  CHECK((*one)->num_points == 7);
  CHECK((*one)->tail == TestSeries("reward").tail);
  CHECK_FALSE(store.FindSeries(kSeriesRun, "absent")->has_value());
  CHECK(store.CountSeries("t1").value() == 2);
  CHECK(store.CountSeries("t2").value() == 0);
}

TEST_CASE("Store: a fold of an engine that leads no longer is refused as a whole", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  REQUIRE(store.TakeLeadership().ok());
  REQUIRE(WriteFold(store, TestFold(10)).ok());
  SeriesFold other = TestFold(1, "s1:train:1");
  SeriesFold old = TestFold(9);
  old.series = {TestSeries("loss")};
  const std::vector<SeriesFold> folds = {other, old};
  CHECK(absl::IsFailedPrecondition(store.WriteSeries(folds)));
  CHECK((*store.FindRunSeries(kSeriesRun))->folded_through == 10);
  CHECK_FALSE(store.FindRunSeries("s1:train:1")->has_value());
  CHECK(store.ListSeries(kSeriesRun, false)->empty());
  // The same place again is a repetition.
  CHECK(WriteFold(store, TestFold(10)).ok());
}

TEST_CASE("Store: chunks are read by level, number and step, and dropped by number", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  REQUIRE(store.TakeLeadership().ok());
  SeriesFold fold = TestFold(1);
  for (int64_t number = 0; number < 5; ++number) fold.chunks.push_back(TestChunk(0, number));
  fold.chunks.push_back(TestChunk(1, 0));
  REQUIRE(WriteFold(store, fold).ok());
  CHECK(NumbersOf(store, 0, {0, 100, kFirstStep, kLastStep}) ==
        std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(NumbersOf(store, 0, {1, 3, kFirstStep, kLastStep}) == std::vector<int64_t>{1, 2});
  CHECK(NumbersOf(store, 0, {0, 100, 19, 30}) == std::vector<int64_t>{1, 2, 3});
  CHECK(NumbersOf(store, 1, {0, 100, kFirstStep, kLastStep}) == std::vector<int64_t>{0});
  CHECK(store.CountSeriesBuckets(kSeriesRun, "loss", 0, kFirstStep, kLastStep).value() == 5 * 512);
  CHECK(store.CountSeriesBuckets(kSeriesRun, "loss", 0, 19, 30).value() == 3 * 512);
  CHECK(store.CountSeriesBuckets(kSeriesRun, "loss", 2, kFirstStep, kLastStep).value() == 0);
  SeriesFold next = TestFold(2);
  next.dropped = {{.name = "loss", .level = 0, .before_number = 3}};
  REQUIRE(WriteFold(store, next).ok());
  CHECK(store.FirstSeriesChunk(kSeriesRun, "loss", 0).value() == 3);
  CHECK(store.FirstSeriesChunk(kSeriesRun, "loss", 1).value() == 0);
  CHECK_FALSE(store.FirstSeriesChunk(kSeriesRun, "loss", 2)->has_value());
}

TEST_CASE("Store: old runs lose their metrics in pieces, others keep them", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  REQUIRE(store.TakeLeadership().ok());
  SeriesFold fold = TestFold(1, kSeriesRun, /*last_at=*/50);
  fold.series = {TestSeries("loss"), TestSeries("reward")};
  for (int64_t number = 0; number < 5; ++number) fold.chunks.push_back(TestChunk(0, number));
  REQUIRE(WriteFold(store, fold).ok());
  REQUIRE(WriteFold(store, TestFold(1, "s1:train:1", /*last_at=*/200)).ok());
  CHECK(store.DeleteOldSeries(/*before=*/50, 3).value() == 0);
  int num_pieces = 0;
  for (;;) {
    const auto deleted = store.DeleteOldSeries(/*before=*/100, 3);
    REQUIRE(deleted.ok());
    CHECK(*deleted <= 3);
    if (*deleted == 0) break;
    ++num_pieces;
  }
  CHECK(num_pieces == 3);
  CHECK_FALSE(store.FindRunSeries(kSeriesRun)->has_value());
  CHECK(store.ListSeries(kSeriesRun, false)->empty());
  CHECK(NumbersOf(store, 0, {0, 100, kFirstStep, kLastStep}).empty());
  CHECK(store.FindRunSeries("s1:train:1")->has_value());
}

}  // namespace
}  // namespace lathe::engine
