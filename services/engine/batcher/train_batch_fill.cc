#include "services/engine/batcher/train_batch_fill.h"

namespace lathe::engine {

bool MaySendTrainBatch(int64_t num_outstanding, int64_t queued_tokens, int64_t max_tokens) {
  if (num_outstanding == 0) return true;
  return num_outstanding < kMaxTrainBatches && queued_tokens >= max_tokens;
}

bool TrainBatchFill::TryAdd(int64_t tokens) {
  if (!empty_ && tokens_ + tokens > max_tokens_) return false;
  empty_ = false;
  tokens_ += tokens;
  return true;
}

}  // namespace lathe::engine
