#include "services/worker/training/micro_batches.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lathe::worker {
namespace {

using Order = std::map<const void*, int64_t>;

// Adapters and jobs by first appearance, so that no pointer decides an order.
Order OrderOf(const std::vector<std::unique_ptr<TrainJob>>& jobs) {
  Order order;
  for (const auto& job : jobs) {
    order.emplace(job->adapter.get(), static_cast<int64_t>(order.size()));
    order.emplace(job.get(), static_cast<int64_t>(order.size()));
  }
  return order;
}

// Where a job's gradients go: nowhere, the scratch its adapter's jobs share, or its own.
int64_t GradientOrder(const TrainJob& job, const Order& order) {
  if (job.request.forward_only) return -2;
  return job.spans_micro_batches ? order.at(&job) : -1;
}

std::vector<RowRef> RowsByAdapter(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                  const Order& order) {
  std::vector<RowRef> rows;
  for (const auto& job : jobs) {
    if (job->is_finished) continue;
    for (size_t i = 0; i < job->request.data.size(); ++i) rows.push_back({job.get(), i});
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const RowRef& a, const RowRef& b) {
    return order.at(a.job->adapter.get()) < order.at(b.job->adapter.get());
  });
  return rows;
}

std::deque<MicroBatch> Fill(const std::vector<RowRef>& rows, int64_t token_budget) {
  std::deque<MicroBatch> batches;
  int64_t num_tokens = 0;
  for (const RowRef& row : rows) {
    if (batches.empty() || num_tokens + row.num_tokens() > token_budget) {
      batches.emplace_back();
      num_tokens = 0;
    }
    batches.back().rows.push_back(row);
    num_tokens += row.num_tokens();
  }
  return batches;
}

void MarkSpanningJobs(const std::deque<MicroBatch>& batches) {
  std::map<TrainJob*, const MicroBatch*> seen_in;
  for (const MicroBatch& batch : batches) {
    for (const RowRef& row : batch.rows) {
      const auto [it, is_new] = seen_in.emplace(row.job, &batch);
      if (!is_new && it->second != &batch) row.job->spans_micro_batches = true;
    }
  }
}

}  // namespace

std::deque<MicroBatch> PlanMicroBatches(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                        int64_t token_budget) {
  const Order order = OrderOf(jobs);
  std::deque<MicroBatch> batches = Fill(RowsByAdapter(jobs, order), token_budget);
  MarkSpanningJobs(batches);
  for (MicroBatch& batch : batches) {
    const auto key = [&](const RowRef& row) {
      return std::make_tuple(order.at(row.job->adapter.get()), GradientOrder(*row.job, order),
                             row.num_tokens());
    };
    std::stable_sort(batch.rows.begin(), batch.rows.end(),
                     [&](const RowRef& a, const RowRef& b) { return key(a) < key(b); });
  }
  return batches;
}

void DropFinishedJobs(std::deque<MicroBatch>& micro_batches) {
  for (MicroBatch& batch : micro_batches) {
    std::erase_if(batch.rows, [](const RowRef& row) { return row.job->is_finished; });
  }
  std::erase_if(micro_batches, [](const MicroBatch& batch) { return batch.rows.empty(); });
}

}  // namespace lathe::worker
