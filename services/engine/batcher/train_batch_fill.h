// How many training requests share one TrainBatch, and when the next batch is closed.
#pragma once

#include <cstdint>

namespace lathe::engine {

// A worker has at most this many batches: one that executes and one that is ready.
inline constexpr int64_t kMaxTrainBatches = 2;

// Whether another batch may be sent to a worker that has `num_outstanding`. An idle worker gets
// what there is at once. A busy one gets its next batch early only when that is full: what waits
// may still grow, and one fuller pass is cheaper than two.
bool MaySendTrainBatch(int64_t num_outstanding, int64_t queued_tokens, int64_t max_tokens);

// Fills one batch up to `max_tokens`. A request that is larger by itself travels alone: the worker
// cuts it into micro-batches.
class TrainBatchFill {
 public:
  explicit TrainBatchFill(int64_t max_tokens) : max_tokens_(max_tokens) {}

  // Adds the request unless it does not fit.
  bool TryAdd(int64_t tokens);

 private:
  const int64_t max_tokens_;
  int64_t tokens_ = 0;
  bool empty_ = true;
};

}  // namespace lathe::engine
