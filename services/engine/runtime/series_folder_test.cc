#include "services/engine/runtime/series_folder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/series/chunk.h"
#include "services/engine/series/point_batch.h"
#include "services/engine/series/series_reader.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/sqlite/testing/execute_sql.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

const std::string kFoldedRun = "s1:train:0";

// A store with a journal, as the commits of a leader make it.
struct Journal {
  Journal() { Open(); }

  void Open() {
    store.reset();
    store = *SqliteStore::Open(
        {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
    term = store->TakeLeadership()->term;
    count = 0;
  }

  // Makes a batch durable. Returns its id.
  int64_t Commit(const std::vector<PointEntryPtr>& entries) {
    const int64_t id = CompletionNumber(term, ++count);
    const std::vector<Write> writes = {AppendPoints{id, PackBatch(entries)}};
    REQUIRE(store->Commit(term, writes, {}).ok());
    return id;
  }

  // Changes the database from outside of the store.
  void Execute(const std::string& sql) { ExecuteSql(dir.path() / "lathe.db", sql); }

  TempDir dir;
  std::unique_ptr<SqliteStore> store;
  int64_t term = 0;
  int64_t count = 0;
};

// Entry with enough points that it is folded at once.
PointEntryPtr ManyPoints(const std::string& name, int64_t from_step, const std::string& run,
                         int64_t count = SeriesBook::kManyPoints) {
  auto entry = std::make_shared<PointEntry>();
  entry->run_id = run;
  entry->tenant_id = "t1";
  entry->kind = EntryKind::kUsers;
  for (int64_t step = from_step; step < from_step + count; ++step) {
    entry->points.push_back(
        {.name = name, .value = static_cast<double>(step), .step = step, .unix_ms = step});
  }
  return entry;
}

Series LoadSeries(Store& store, const std::string& name) {
  RunSeries run(*store.FindRunSeries(kFoldedRun).value());
  REQUIRE(run.Add(*store.FindSeries(kFoldedRun, name).value()).ok());
  return run.series().at(name);
}

void AwaitFold(const SeriesBook& book, int64_t through) {
  while (book.FoldedThrough() < through) std::this_thread::yield();
}

TEST_CASE("SeriesFolder: the journal becomes series, and is trimmed", "[series]") {
  Journal journal;
  SeriesBook book(*journal.store);
  SeriesFolder folder({}, *journal.store, book, [] { return int64_t{9}; });
  int64_t id = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<PointEntryPtr> entries = {
        ManyPoints("reward", i * SeriesBook::kManyPoints, kFoldedRun)};
    id = journal.Commit(entries);
    book.OnDurable(id, entries);
  }
  AwaitFold(book, id);
  const Series series = LoadSeries(*journal.store, "reward");
  CHECK(series.row.num_points == 3 * SeriesBook::kManyPoints);
  CHECK(series.row.last_step == 3 * SeriesBook::kManyPoints - 1);
  CHECK(book.PendingOf(kFoldedRun).empty());
  CHECK(book.counts().num_kept == 3 * SeriesBook::kManyPoints);
  CHECK(book.counts().num_pending == 0);
  CHECK((*journal.store->FindRunSeries(kFoldedRun))->last_at == 9);
  while (!journal.store->ReadPointJournal(0, 1)->empty()) std::this_thread::yield();
}

TEST_CASE("SeriesFolder: what an engine has left in the journal is folded once", "[series]") {
  Journal journal;
  const std::vector<PointEntryPtr> first = {ManyPoints("reward", 0, kFoldedRun)};
  const int64_t first_id = journal.Commit(first);
  {
    // Folds the first batch and dies before it trims the journal.
    SeriesFold fold;
    RunSeries run({.run_id = kFoldedRun, .tenant_id = "t1"});
    run.Apply({.journal_id = first_id, .entries = first}, 500);
    fold.series = run.TakeChanged();
    fold.run = run.row();
    const std::vector<SeriesFold> folds = {fold};
    REQUIRE(journal.store->WriteSeries(folds).ok());
  }
  const int64_t last_id =
      journal.Commit({ManyPoints("reward", SeriesBook::kManyPoints, kFoldedRun)});
  journal.Open();
  SeriesBook book(*journal.store);
  book.Load();
  REQUIRE(book.is_loaded());
  CHECK(book.PendingOf(kFoldedRun).size() == 2);
  SeriesFolder folder({}, *journal.store, book, [] { return int64_t{0}; });
  AwaitFold(book, last_id);
  CHECK(LoadSeries(*journal.store, "reward").row.num_points == 2 * SeriesBook::kManyPoints);
}

TEST_CASE("SeriesFolder: rows of the journal that cannot be read are skipped and counted",
          "[series]") {
  Journal journal;
  const std::string later_format("\x02 of a later release");
  for (const std::string& bytes : {std::string("\x01\x7f"), later_format}) {
    const std::vector<Write> writes = {
        AppendPoints{CompletionNumber(journal.term, ++journal.count), bytes}};
    REQUIRE(journal.store->Commit(journal.term, writes, {}).ok());
  }
  // More than a page.
  int64_t last_id = 0;
  for (int64_t step = 0; step < 3 * SeriesBook::kRowsPerPage; ++step) {
    last_id = journal.Commit({ManyPoints("reward", step, kFoldedRun, 1)});
  }
  journal.Open();
  SeriesBook book(*journal.store);
  book.Load();
  CHECK(book.is_loaded());
  CHECK(book.counts().num_damaged == 2);
  SeriesFolder folder({}, *journal.store, book, [] { return int64_t{0}; });
  AwaitFold(book, last_id);
  CHECK(LoadSeries(*journal.store, "reward").row.num_points == 3 * SeriesBook::kRowsPerPage);
}

TEST_CASE("SeriesFolder: while the journal cannot be read, the book is full; then it is read",
          "[series]") {
  Journal journal;
  const int64_t id = journal.Commit({ManyPoints("reward", 0, kFoldedRun)});
  journal.Open();
  journal.Execute("ALTER TABLE series_journal RENAME TO hidden");
  SeriesBook book(*journal.store);
  book.Load();
  CHECK_FALSE(book.is_loaded());
  CHECK(book.is_full("t1"));
  journal.Execute("ALTER TABLE hidden RENAME TO series_journal");
  SeriesFolder folder({}, *journal.store, book, [] { return int64_t{0}; });
  AwaitFold(book, id);
  CHECK_FALSE(book.is_full("t1"));
}

TEST_CASE("SeriesBook: a tenant whose points pile up shuts out itself and no other", "[series]") {
  Journal journal;
  SeriesBook book(*journal.store);
  book.Load();
  auto large = std::make_shared<PointEntry>(*ManyPoints("reward", 0, kFoldedRun, 1));
  large->tenant_id = "greedy";
  large->points.resize(50'000, large->points.front());
  int64_t id = 0;
  while (!book.is_full("greedy")) book.OnDurable(++id, {large});
  CHECK(id * MemoryOf(*large) > SeriesBook::kMaxTenantPendingBytes);
  CHECK_FALSE(book.is_full("t1"));
  book.Folded(kFoldedRun, 1);
  CHECK_FALSE(book.is_full("greedy"));
}

TEST_CASE("SeriesBook: a fold gets the oldest batches of a run, bounded by their points",
          "[series]") {
  Journal journal;
  SeriesBook book(*journal.store);
  for (int64_t id = 1; id <= 5; ++id) book.OnDurable(id, {ManyPoints("reward", id, kFoldedRun, 3)});
  CHECK(book.PendingOf(kFoldedRun).size() == 5);
  REQUIRE(book.PendingOf(kFoldedRun, 7).size() == 2);
  CHECK(book.PendingOf(kFoldedRun, 7).back().journal_id == 2);
  CHECK(book.PendingOf(kFoldedRun, 1).size() == 1);
  book.Folded(kFoldedRun, 2);
  CHECK(book.PendingOf(kFoldedRun, 7).front().journal_id == 3);
  CHECK(book.FoldedThrough() == 2);
}

TEST_CASE("SeriesFolder: a run with damaged bytes loses its points, others and the journal go on",
          "[series]") {
  Journal journal;
  int64_t id = 0;
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) {
      journal.Execute(
          absl::StrCat("UPDATE series SET tail = x'7f' WHERE run_id = '", kFoldedRun, "'"));
    }
    SeriesBook book(*journal.store);
    SeriesFolder folder({}, *journal.store, book, [] { return int64_t{0}; });
    const std::vector<PointEntryPtr> entries = {ManyPoints("reward", id, kFoldedRun),
                                                ManyPoints("reward", id, "s1:train:1")};
    id = journal.Commit(entries);
    book.OnDurable(id, entries);
    AwaitFold(book, id);
    CHECK(book.counts().num_damaged == (is_damaged ? 1 : 0));
    CHECK(book.counts().num_dropped == (is_damaged ? SeriesBook::kManyPoints : 0));
  }
  CHECK(journal.store->FindSeries("s1:train:1", "reward").value()->num_points ==
        2 * SeriesBook::kManyPoints);
  CHECK(journal.store->FindSeries(kFoldedRun, "reward").value()->num_points ==
        SeriesBook::kManyPoints);
}

TEST_CASE("SeriesFolder: a run that the store does not take holds up no other", "[series]") {
  Journal journal;
  journal.Execute(
      "CREATE TRIGGER refuse BEFORE INSERT ON series_runs WHEN new.run_id = 's1:train:0'"
      " BEGIN SELECT raise(ABORT, 'refused'); END");
  SeriesBook book(*journal.store);
  SeriesFolder folder({}, *journal.store, book, [] { return int64_t{0}; });
  std::vector<PointEntryPtr> entries;
  for (int i = 0; i < 5; ++i) {
    entries.push_back(ManyPoints("reward", 0, absl::StrCat("s1:train:", i)));
  }
  const int64_t id = journal.Commit(entries);
  book.OnDurable(id, entries);
  for (int i = 1; i < 5; ++i) {
    while (!book.PendingOf(absl::StrCat("s1:train:", i)).empty()) std::this_thread::yield();
  }
  CHECK(book.PendingOf(kFoldedRun).size() == 1);
  CHECK(book.FoldedThrough() < id);
  journal.Execute("DROP TRIGGER refuse");
  AwaitFold(book, id);
  CHECK(book.counts().num_dropped == 0);
}

TEST_CASE("SeriesFolder: a tenant has a bound of series, another has its own", "[series]") {
  Journal journal;
  SeriesBook book(*journal.store);
  SeriesOptions options;
  options.max_series_per_tenant = 2;
  SeriesFolder folder(options, *journal.store, book, [] { return int64_t{0}; });
  std::vector<PointEntryPtr> entries;
  for (int i = 0; i < 4; ++i) {
    entries.push_back(ManyPoints(absl::StrCat("n", i), 0, absl::StrCat("s1:train:", i / 2)));
  }
  auto other = std::make_shared<PointEntry>(*ManyPoints("n", 0, "s2:train:0"));
  other->tenant_id = "t2";
  entries.push_back(other);
  const int64_t id = journal.Commit(entries);
  book.OnDurable(id, entries);
  AwaitFold(book, id);
  CHECK(journal.store->CountSeries("t1").value() == 2);
  CHECK(journal.store->CountSeries("t2").value() == 1);
  CHECK(book.counts().num_dropped == 2 * SeriesBook::kManyPoints);
}

TEST_CASE("SeriesFolder: a long series is read at every resolution, spikes included", "[series]") {
  constexpr int64_t kCount = 150'000;
  Journal journal;
  SeriesBook book(*journal.store);
  SeriesOptions options;
  options.keep_points_per_series = GENERATE(1'000'000, 20'000);
  SeriesFolder folder(options, *journal.store, book, [] { return int64_t{0}; });
  auto entry = std::make_shared<PointEntry>(*ManyPoints("reward", 0, kFoldedRun, kCount));
  entry->points[1000].value = 1e9;
  const int64_t id = journal.Commit({entry});
  book.OnDurable(id, {entry});
  AwaitFold(book, id);
  const Series series = LoadSeries(*journal.store, "reward");
  const bool is_whole = options.keep_points_per_series > kCount;

  const auto all = ReadBuckets(*journal.store, series, {}, 800);
  REQUIRE(all.ok());
  CHECK(all->level > 0);
  CHECK(all->buckets.size() <= 800);
  CHECK(all->buckets.size() >= 400);
  int64_t count = 0;
  double max = 0;
  int64_t last_step = -1;
  for (const Bucket& bucket : all->buckets) {
    count += bucket.count;
    max = std::max(max, bucket.max);
    CHECK(bucket.step > last_step);
    last_step = bucket.step;
  }
  CHECK(count == kCount);
  CHECK(max == 1e9);
  CHECK(last_step == kCount - 1);

  const auto newest = ReadBuckets(*journal.store, series, {.from = kCount - 700}, 800);
  REQUIRE(newest.ok());
  CHECK(newest->level == 0);
  REQUIRE(newest->buckets.size() == 700);
  CHECK(newest->buckets.front().step == kCount - 700);

  const auto oldest = ReadBuckets(*journal.store, series, {.from = 0, .to = 4095}, 2000);
  REQUIRE(oldest.ok());
  CHECK((oldest->level == 0) == is_whole);
  int64_t num_oldest = 0;
  for (const Bucket& bucket : oldest->buckets) num_oldest += bucket.count;
  CHECK(num_oldest == 4096);
}

}  // namespace
}  // namespace lathe::engine
