#include "services/engine/series/run_series.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "libs/common/status_macros.h"
#include "services/engine/series/chunk.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {
namespace {

SeriesSource SourceOf(EntryKind kind) {
  return kind == EntryKind::kUsers ? SeriesSource::kUsers : SeriesSource::kResults;
}

}  // namespace

absl::Status RunSeries::Add(SeriesRow row) {
  Series series;
  if (!row.tail.empty()) {
    ASSIGN_OR_RETURN(series.tail, UnpackPoints(row.tail));
    row.tail.clear();
  }
  series.row = std::move(row);
  std::string name = series.row.name;
  series_.insert_or_assign(std::move(name), std::move(series));
  return absl::OkStatus();
}

Series* RunSeries::FindOrAdd(const std::string& name, EntryKind kind, int64_t max_series) {
  const auto found = series_.find(name);
  if (found != series_.end()) {
    return found->second.row.source == SourceOf(kind) ? &found->second : nullptr;
  }
  if (row_.num_series >= max_series || !IsMetricName(name)) return nullptr;
  ++row_.num_series;
  Series& series = series_[name];
  series.row.run_id = row_.run_id;
  series.row.name = name;
  series.row.source = SourceOf(kind);
  if (series.row.source == SeriesSource::kResults) series.row.unit = UnitOfMetric(name);
  return &series;
}

bool RunSeries::Append(Series& series, EntryKind kind, const Point& point) const {
  SeriesRow& row = series.row;
  const bool is_first = row.num_points == 0;
  const double value = kind == EntryKind::kCounts ? row.last_value + point.value : point.value;
  if (!std::isfinite(value)) return false;
  if (!is_first && point.step < row.last_step) return false;
  const bool replaces = !is_first && point.step == row.last_step &&
                        (kind == EntryKind::kUsers || kind == EntryKind::kCounts);
  // The tail of a head is not there.
  if (replaces && !series.tail.empty()) series.tail.pop_back();
  series.tail.push_back({.step = point.step, .unix_ms = point.unix_ms, .value = value});
  if (!replaces) ++row.num_points;
  row.last_step = point.step;
  row.last_value = value;
  row.last_ms = point.unix_ms;
  series.is_changed = true;
  return true;
}

RunSeries::Counts RunSeries::Apply(const RunBatch& batch, int64_t max_series,
                                   const std::string* only) {
  Counts counts;
  if (batch.journal_id <= row_.folded_through) return counts;
  std::vector<Series*> touched;
  for (const PointEntryPtr& entry : batch.entries) {
    for (const NamedPoint& named : entry->points) {
      if (only != nullptr && named.name != *only) continue;
      Series* const series = FindOrAdd(named.name, entry->kind, max_series);
      if (series != nullptr && batch.journal_id <= series->row.folded_through) continue;
      const bool is_users = entry->kind == EntryKind::kUsers;
      const bool is_kept =
          series != nullptr && Append(*series, entry->kind,
                                      {.step = is_users ? named.step : row_.num_steps,
                                       .unix_ms = is_users ? named.unix_ms : entry->unix_ms,
                                       .value = named.value});
      ++(is_kept ? counts.num_kept : counts.num_dropped);
      if (is_kept) touched.push_back(series);
    }
    if (entry->kind == EntryKind::kOptimStep) ++row_.num_steps;
  }
  for (Series* const series : touched) series->row.folded_through = batch.journal_id;
  row_.folded_through = batch.journal_id;
  return counts;
}

std::vector<SeriesChunkRow> RunSeries::Seal() {
  std::vector<SeriesChunkRow> chunks;
  for (auto& [name, series] : series_) {
    size_t sealed = 0;
    while (series.tail.size() - sealed > kChunkPoints) {
      const auto points = std::span<const Point>(series.tail).subspan(sealed, kChunkPoints);
      chunks.push_back({.run_id = row_.run_id,
                        .name = name,
                        .level = 0,
                        .number = series.row.num_sealed / kChunkPoints,
                        .first_step = points.front().step,
                        .last_step = points.back().step,
                        .num_buckets = kChunkPoints,
                        .bytes = PackPoints(points)});
      series.row.num_sealed += kChunkPoints;
      sealed += kChunkPoints;
    }
    series.tail.erase(series.tail.begin(), series.tail.begin() + static_cast<int64_t>(sealed));
  }
  return chunks;
}

std::vector<RunSeries::NewPoints> RunSeries::TakePoints() {
  std::vector<NewPoints> taken;
  for (auto& [name, series] : series_) {
    if (series.tail.empty()) continue;
    taken.push_back({.row = &series.row, .points = std::exchange(series.tail, {})});
  }
  return taken;
}

std::vector<SeriesRow> RunSeries::TakeChanged() {
  std::vector<SeriesRow> rows;
  for (auto& [name, series] : series_) {
    if (!series.is_changed) continue;
    series.is_changed = false;
    rows.push_back(series.row);
    rows.back().tail = PackPoints(series.tail);
  }
  return rows;
}

int64_t RunSeries::bytes() const {
  constexpr int64_t kSeriesBytes = 512;
  int64_t bytes = kSeriesBytes;
  for (const auto& [name, series] : series_) {
    bytes += kSeriesBytes + static_cast<int64_t>(series.tail.capacity() * sizeof(Point));
  }
  return bytes;
}

}  // namespace lathe::engine
