#include "services/engine/runtime/series_book.h"

#include <utility>

#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/series/point_batch.h"

namespace lathe::engine {
namespace {

int64_t NumPoints(const RunBatch& batch) {
  int64_t count = 0;
  for (const PointEntryPtr& entry : batch.entries) {
    count += static_cast<int64_t>(entry->points.size());
  }
  return count;
}

}  // namespace

void SeriesBook::Load() {
  for (;;) {
    int64_t after = 0;
    {
      absl::MutexLock lock(&mu_);
      if (is_loaded_ || pending_bytes_ > kMaxPendingBytes) return;
      after = last_id_;
    }
    const absl::StatusOr<std::vector<JournalRow>> rows =
        store_.ReadPointJournal(after, kRowsPerPage);
    if (!rows.ok()) {
      LogWarn("the journal of metrics was not read, and is tried again",
              {{"error", rows.status().message()}});
      return;
    }
    AddPage(*rows);
  }
}

void SeriesBook::AddPage(const std::vector<JournalRow>& rows) {
  for (const JournalRow& row : rows) {
    const absl::StatusOr<std::vector<PointEntryPtr>> entries = UnpackBatch(row.bytes);
    absl::MutexLock lock(&mu_);
    last_id_ = row.journal_id;
    if (entries.ok()) {
      AddLocked(row.journal_id, *entries);
      continue;
    }
    ++counts_.num_damaged;
    LogWarn("a batch in the journal of metrics is skipped",
            {{"journal_id", row.journal_id}, {"error", entries.status().message()}});
  }
  absl::MutexLock lock(&mu_);
  is_loaded_ = rows.size() < static_cast<size_t>(kRowsPerPage);
}

bool SeriesBook::is_loaded() const {
  absl::MutexLock lock(&mu_);
  return is_loaded_;
}

void SeriesBook::OnDurable(int64_t journal_id, const std::vector<PointEntryPtr>& entries) {
  absl::MutexLock lock(&mu_);
  AddLocked(journal_id, entries);
}

void SeriesBook::AddLocked(int64_t journal_id, const std::vector<PointEntryPtr>& entries) {
  last_id_ = journal_id;
  for (const PointEntryPtr& entry : entries) {
    Pending& run = runs_[entry->run_id];
    if (run.batches.empty()) {
      run.since = SteadyNow();
      if (!run.is_taken) by_age_.push_back(entry->run_id);
    }
    if (run.batches.empty() || run.batches.back().journal_id != journal_id) {
      run.batches.push_back({.journal_id = journal_id, .entries = {}});
      ++unfolded_[journal_id];
    }
    run.batches.back().entries.push_back(entry);
    const auto count = static_cast<int64_t>(entry->points.size());
    if (run.num_points < kManyPoints && run.num_points + count >= kManyPoints && !run.is_taken) {
      large_.push_back(entry->run_id);
    }
    run.num_points += count;
    counts_.num_pending += count;
    AddBytesLocked(entry->tenant_id, MemoryOf(*entry));
  }
}

void SeriesBook::AddBytesLocked(const std::string& tenant_id, int64_t bytes) {
  pending_bytes_ += bytes;
  const auto tenant = pending_bytes_of_.try_emplace(tenant_id).first;
  tenant->second += bytes;
  if (tenant->second == 0) pending_bytes_of_.erase(tenant);
}

bool SeriesBook::is_full(const std::string& tenant_id) const {
  absl::MutexLock lock(&mu_);
  if (!is_loaded_ || pending_bytes_ > kMaxPendingBytes) return true;
  const auto tenant = pending_bytes_of_.find(tenant_id);
  return tenant != pending_bytes_of_.end() && tenant->second > kMaxTenantPendingBytes;
}

std::vector<RunBatch> SeriesBook::PendingOf(const std::string& run_id, int64_t max_points) const {
  absl::MutexLock lock(&mu_);
  const auto found = runs_.find(run_id);
  if (found == runs_.end()) return {};
  std::vector<RunBatch> batches;
  int64_t num_points = 0;
  for (const RunBatch& batch : found->second.batches) {
    num_points += NumPoints(batch);
    if (!batches.empty() && num_points > max_points) break;
    batches.push_back(batch);
  }
  return batches;
}

std::vector<std::string> SeriesBook::TakeDue(absl::Time now, size_t max_runs) {
  std::vector<std::string> due;
  absl::MutexLock lock(&mu_);
  const auto take = [&](std::deque<std::string>& queue, const auto& is_due) {
    while (!queue.empty() && due.size() < max_runs) {
      const auto run = runs_.find(queue.front());
      const bool is_waiting =
          run != runs_.end() && !run->second.is_taken && !run->second.batches.empty();
      if (is_waiting && !is_due(run->second)) return;
      if (is_waiting) {
        run->second.is_taken = true;
        due.push_back(run->first);
      }
      queue.pop_front();
    }
  };
  take(large_, [](const Pending&) { return true; });
  take(by_age_, [&](const Pending& run) { return now - run.since >= kMaxAge; });
  return due;
}

void SeriesBook::Folded(const std::string& run_id, int64_t through) {
  absl::MutexLock lock(&mu_);
  RemoveLocked(run_id, through);
}

void SeriesBook::Drop(const std::string& run_id, int64_t through) {
  absl::MutexLock lock(&mu_);
  counts_.num_dropped += RemoveLocked(run_id, through);
  ++counts_.num_damaged;
}

int64_t SeriesBook::RemoveLocked(const std::string& run_id, int64_t through) {
  const auto found = runs_.find(run_id);
  if (found == runs_.end()) return 0;
  int64_t num_removed = 0;
  Pending& run = found->second;
  while (!run.batches.empty() && run.batches.front().journal_id <= through) {
    const RunBatch& batch = run.batches.front();
    const auto runs_left = unfolded_.find(batch.journal_id);
    if (--runs_left->second == 0) unfolded_.erase(runs_left);
    const int64_t count = NumPoints(batch);
    num_removed += count;
    run.num_points -= count;
    counts_.num_pending -= count;
    for (const PointEntryPtr& entry : batch.entries) {
      AddBytesLocked(entry->tenant_id, -MemoryOf(*entry));
    }
    run.batches.pop_front();
  }
  if (run.batches.empty()) {
    runs_.erase(found);
    return num_removed;
  }
  run.is_taken = false;
  run.since = SteadyNow();
  by_age_.push_back(run_id);
  if (run.num_points >= kManyPoints) large_.push_back(run_id);
  return num_removed;
}

void SeriesBook::PutBack(const std::string& run_id) {
  absl::MutexLock lock(&mu_);
  const auto found = runs_.find(run_id);
  if (found == runs_.end()) return;
  found->second.is_taken = false;
  found->second.since = SteadyNow();
  by_age_.push_back(run_id);
}

int64_t SeriesBook::FoldedThrough() const {
  absl::MutexLock lock(&mu_);
  return unfolded_.empty() ? last_id_ : unfolded_.begin()->first - 1;
}

absl::StatusOr<int64_t> SeriesBook::NumSeriesOf(const std::string& tenant_id) {
  {
    absl::MutexLock lock(&mu_);
    const auto found = num_series_.find(tenant_id);
    if (found != num_series_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(const int64_t count, store_.CountSeries(tenant_id));
  absl::MutexLock lock(&mu_);
  return num_series_.try_emplace(tenant_id, count).first->second;
}

void SeriesBook::AddSeries(const std::string& tenant_id, int64_t count) {
  absl::MutexLock lock(&mu_);
  const auto found = num_series_.find(tenant_id);
  if (found != num_series_.end()) found->second += count;
}

void SeriesBook::ForgetCounts() {
  absl::MutexLock lock(&mu_);
  num_series_.clear();
}

void SeriesBook::CountPoints(int64_t num_kept, int64_t num_dropped) {
  absl::MutexLock lock(&mu_);
  counts_.num_kept += num_kept;
  counts_.num_dropped += num_dropped;
}

SeriesBook::Counts SeriesBook::counts() const {
  absl::MutexLock lock(&mu_);
  return counts_;
}

}  // namespace lathe::engine
