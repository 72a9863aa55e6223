// The part of Runtime that keeps the metrics of runs.
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "libs/common/errors.h"
#include "services/engine/runtime/result_points.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {
namespace {

// Adds counts to those of the same run in the batch.
void AddCounts(PointEntry& sum, const PointEntry& counts) {
  for (const NamedPoint& point : counts.points) {
    NamedPoint* found = nullptr;
    for (NamedPoint& one : sum.points) {
      if (one.name == point.name) found = &one;
    }
    if (found == nullptr) {
      sum.points.push_back(point);
    } else {
      found->value += point.value;
    }
  }
}

}  // namespace

PointEntryPtr Runtime::PointsOf(const CompleteRequest& write) {
  if (write.state != RequestState::kDone) return nullptr;
  const std::optional<ResultHub::Facts> facts = hub_.FactsOf(write.request_id);
  const SharedBytes result = results_.Held(write.result_id);
  if (!facts || !result) return nullptr;
  FinishedRequest request = {.run_id = facts->owner_id,
                             .tenant_id = facts->tenant_id,
                             .kind = facts->kind,
                             .tokens = facts->tokens,
                             .learning_rate = facts->learning_rate,
                             .done_at = write.done_at};
  if (facts->kind == OperationKind::kSample) {
    const auto sampler = directory_.FindSampler(facts->tenant_id, facts->owner_id);
    // The weights may be a published checkpoint of another tenant, whose run takes no points from
    // this one.
    if (!sampler || !directory_.FindModel(facts->tenant_id, sampler->model_id)) return nullptr;
    request.run_id = sampler->model_id;
  } else {
    const SessionTraces::Times times = traces_.TimesOf(write.request_id);
    request.accepted_at = times.accepted_at;
    request.dispatched_at = times.dispatched_at;
    request.executed_at = times.executed_at;
  }
  return PointsOfResult(request, *result);
}

std::function<std::vector<PointEntryPtr>(const std::vector<CommitLoop::Item>&)>
Runtime::MakePointsOf() {
  if (!options_.series.is_on()) return nullptr;
  return [this](const std::vector<CommitLoop::Item>& items) { return PointsOf(items); };
}

std::vector<PointEntryPtr> Runtime::PointsOf(const std::vector<CommitLoop::Item>& items) {
  std::vector<PointEntryPtr> entries;
  // Counts of a run between two of its optim_steps become one entry.
  std::map<std::string, std::shared_ptr<PointEntry>> counts;
  for (const CommitLoop::Item& item : items) {
    for (const Write& write : item.commit.writes) {
      const auto* const complete = std::get_if<CompleteRequest>(&write);
      if (complete == nullptr) continue;
      PointEntryPtr entry = PointsOf(*complete);
      if (!entry) continue;
      if (series_book_.is_full(entry->tenant_id)) {
        series_book_.CountPoints(0, static_cast<int64_t>(entry->points.size()));
        continue;
      }
      if (entry->kind == EntryKind::kOptimStep) counts.erase(entry->run_id);
      if (entry->kind != EntryKind::kCounts) {
        entries.push_back(std::move(entry));
        continue;
      }
      std::shared_ptr<PointEntry>& sum = counts[entry->run_id];
      if (sum) {
        AddCounts(*sum, *entry);
        continue;
      }
      sum = std::make_shared<PointEntry>(*entry);
      entries.push_back(sum);
    }
  }
  return entries;
}

void Runtime::AppendPoints(PointEntry entry, CallTable::Callback done) {
  const CallId call = calls_.Add(std::move(done), CallDeadline());
  if (is_disk_full_) return RefuseFull(call);
  const auto enqueue = [this, call](const PointEntryPtr& checked) {
    const auto release = [this, call, checked] {
      series_heads_.Release(checked);
      Answer answer;
      answer.call = call;
      calls_.Finish(answer);
    };
    return commits_->TryEnqueue({.entry = checked, .on_durable = release});
  };
  const absl::Status status = series_heads_.Append(std::move(entry), enqueue);
  if (status.ok()) return;
  Answer answer;
  answer.call = call;
  answer.error = ToErrorInfo(status);
  calls_.Finish(answer);
}

void Runtime::AppendOwnPoints(PointEntryPtr entry) {
  if (!options_.series.is_on() || is_disk_full_ || series_book_.is_full(entry->tenant_id)) {
    return;
  }
  // Refused while too many points of users wait, which is no error here.
  commits_->TryEnqueue({.entry = std::move(entry), .on_durable = [] {}}).IgnoreError();
}

}  // namespace lathe::engine
