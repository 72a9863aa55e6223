#include "services/engine/runtime/series_folder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/series/metric_names.h"
#include "services/engine/series/roll_up.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);
// Length of a rest in times of the fold before it.
constexpr int kRestsPerFold = 3;
constexpr absl::Duration kAfterFailure = absl::Seconds(1);
constexpr absl::Duration kTrimPeriod = absl::Seconds(5);
// Time between two looks for runs that retention no longer keeps.
constexpr absl::Duration kDeletePeriod = absl::Minutes(1);

}  // namespace

SeriesFolder::SeriesFolder(const SeriesOptions& options, Store& store, SeriesBook& book,
                           std::function<int64_t()> now_nanos)
    : options_(options),
      store_(store),
      book_(book),
      now_nanos_(std::move(now_nanos)),
      thread_("engine-series", [this] { Run(); }) {}

SeriesFolder::~SeriesFolder() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

void SeriesFolder::Run() {
  absl::Duration pause = kLookPeriod;
  while (Rest(pause)) {
    const absl::Time began = SteadyNow();
    book_.Load();
    const size_t max_runs = runs_per_fold_;
    const std::vector<std::string> due = book_.TakeDue(began, max_runs);
    if (!due.empty()) {
      FoldRuns(due);
    } else if (options_.is_on() && began >= deletes_at_ && !DeleteOld()) {
      deletes_at_ = began + kDeletePeriod;
    }
    if (began >= trims_at_ && !Trim()) trims_at_ = began + kTrimPeriod;
    const absl::Duration rest = kRestsPerFold * (SteadyNow() - began);
    pause = due.size() == max_runs ? rest : std::max(rest, kLookPeriod);
  }
}

void SeriesFolder::FoldRuns(const std::vector<std::string>& run_ids) {
  std::vector<SeriesFold> folds;
  size_t num_rows = 0;
  for (const std::string& run_id : run_ids) {
    const std::vector<RunBatch> batches = book_.PendingOf(run_id, kMaxPointsPerRun);
    absl::StatusOr<SeriesFold> fold = Fold(run_id, batches);
    if (fold.ok()) {
      const size_t more_rows = fold->series.size() + fold->chunks.size() + fold->dropped.size();
      if (num_rows + more_rows > kMaxRowsPerFold) {
        Write(std::exchange(folds, {}));
        num_rows = 0;
      }
      num_rows += more_rows;
      folds.push_back(*std::move(fold));
    } else if (absl::IsDataLoss(fold.status())) {
      // The journal cannot wait for a run whose series nobody can read any more.
      LogError("points are dropped, because the metrics of their run are damaged",
               {{"run", run_id}, {"error", fold.status().message()}});
      Forget(run_id);
      book_.Drop(run_id, batches.back().journal_id);
    } else {
      TryAgain(run_id, fold.status());
    }
  }
  Write(folds);
}

void SeriesFolder::Write(const std::vector<SeriesFold>& folds) {
  if (folds.empty()) return;
  const absl::Status status = store_.WriteSeries(folds);
  if (status.ok()) {
    FailPoint("engine.series.folded");
    for (const SeriesFold& fold : folds) {
      book_.Folded(fold.run.run_id, fold.run.folded_through);
      Evict(fold.run.run_id);
    }
    runs_per_fold_ = std::min(2 * runs_per_fold_, kMaxRunsPerFold);
    return;
  }
  for (const SeriesFold& fold : folds) TryAgain(fold.run.run_id, status);
  // A run that the store does not take may not hold up the others.
  runs_per_fold_ = 1;
  Rest(kAfterFailure);
}

void SeriesFolder::TryAgain(const std::string& run_id, const absl::Status& status) {
  LogWarn("metrics were not folded and are tried again",
          {{"run", run_id}, {"error", status.message()}});
  // The store has nothing of the fold, the series in memory have.
  Forget(run_id);
  book_.PutBack(run_id);
  book_.ForgetCounts();
}

absl::StatusOr<SeriesFold> SeriesFolder::Fold(const std::string& run_id,
                                              const std::vector<RunBatch>& batches) {
  const std::string& tenant_id = batches.front().entries.front()->tenant_id;
  ASSIGN_OR_RETURN(RunSeries* const run, Find(run_id, tenant_id));
  ASSIGN_OR_RETURN(const int64_t num_of_tenant, book_.NumSeriesOf(tenant_id));
  const int64_t num_before = run->row().num_series;
  int64_t max_series = kMaxSeriesPerRun;
  if (options_.max_series_per_tenant > 0) {
    const int64_t room = std::max<int64_t>(0, options_.max_series_per_tenant - num_of_tenant);
    max_series = std::min(max_series, num_before + room);
  }
  int64_t num_kept = 0;
  int64_t num_dropped = 0;
  for (const RunBatch& batch : batches) {
    const RunSeries::Counts counts = run->Apply(batch, max_series);
    num_kept += counts.num_kept;
    num_dropped += counts.num_dropped;
  }
  book_.CountPoints(num_kept, num_dropped);
  book_.AddSeries(tenant_id, run->row().num_series - num_before);
  SeriesFold fold;
  const auto read = [&](const std::string& name, int64_t level,
                        int64_t number) -> absl::StatusOr<std::optional<SeriesChunkRow>> {
    ASSIGN_OR_RETURN(std::vector<SeriesChunkRow> rows,
                     store_.ReadSeriesChunks(run_id, name, level,
                                             {.from_number = number,
                                              .before_number = number + 1,
                                              .from_step = std::numeric_limits<int64_t>::min(),
                                              .to_step = std::numeric_limits<int64_t>::max()}));
    if (rows.empty()) return std::nullopt;
    return std::move(rows.front());
  };
  ASSIGN_OR_RETURN(fold.chunks, RollUp(run->Seal(), read));
  fold.series = run->TakeChanged();
  const int64_t keep_points = options_.keep_points_per_series;
  fold.dropped = ChunksToDrop(fold.chunks, run_id.starts_with(kMachinePrefix)
                                               ? std::min(kMachineKeepPoints, keep_points)
                                               : keep_points);
  run->row().last_at = now_nanos_();
  fold.run = run->row();
  return fold;
}

absl::StatusOr<RunSeries*> SeriesFolder::Find(const std::string& run_id,
                                              const std::string& tenant_id) {
  const auto found = cache_.find(run_id);
  if (found != cache_.end()) {
    ages_.splice(ages_.end(), ages_, found->second.age);
    return &found->second.series;
  }
  ASSIGN_OR_RETURN(std::optional<RunSeriesRow> row, store_.FindRunSeries(run_id));
  RunSeries series(row ? *std::move(row) : RunSeriesRow{.run_id = run_id, .tenant_id = tenant_id});
  ASSIGN_OR_RETURN(std::vector<SeriesRow> rows, store_.ListSeries(run_id, /*with_tails=*/true));
  for (SeriesRow& one : rows) RETURN_IF_ERROR(series.Add(std::move(one)));
  const auto age = ages_.insert(ages_.end(), run_id);
  const auto added = cache_.insert_or_assign(run_id, Cached{std::move(series), 0, age}).first;
  return &added->second.series;
}

void SeriesFolder::Forget(const std::string& run_id) {
  const auto found = cache_.find(run_id);
  if (found == cache_.end()) return;
  cached_bytes_ -= found->second.bytes;
  ages_.erase(found->second.age);
  cache_.erase(found);
}

void SeriesFolder::Evict(const std::string& run_id) {
  const auto found = cache_.find(run_id);
  if (found == cache_.end()) return;
  Cached& changed = found->second;
  cached_bytes_ -= std::exchange(changed.bytes, changed.series.bytes());
  cached_bytes_ += changed.bytes;
  while (cached_bytes_ > kMaxCachedBytes && ages_.size() > 1) Forget(std::string(ages_.front()));
}

bool SeriesFolder::Trim() {
  const int64_t through = book_.FoldedThrough();
  if (through <= trimmed_through_) return false;
  const absl::StatusOr<int64_t> num_rows = store_.TrimPointJournal(through, kMaxTrimmedRows);
  if (!num_rows.ok()) {
    LogWarn("the journal of metrics was not trimmed", {{"error", num_rows.status().message()}});
    return false;
  }
  if (*num_rows == kMaxTrimmedRows) return true;
  trimmed_through_ = through;
  return false;
}

bool SeriesFolder::DeleteOld() {
  const int64_t before = now_nanos_() - absl::ToInt64Nanoseconds(options_.keep);
  const absl::StatusOr<int64_t> num_deleted = store_.DeleteOldSeries(before, kMaxPurgedRows);
  if (!num_deleted.ok()) {
    LogWarn("old metrics were not removed", {{"error", num_deleted.status().message()}});
    return false;
  }
  if (*num_deleted == 0) return false;
  while (!ages_.empty()) Forget(std::string(ages_.front()));
  book_.ForgetCounts();
  return true;
}

bool SeriesFolder::Rest(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&closed_), duration);
}

}  // namespace lathe::engine
