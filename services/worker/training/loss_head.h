// From final hidden states to losses and back, a chunk of rows at a time: the logits of a whole
// batch never exist.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/models/model.h"
#include "services/worker/training/packed_batch.h"

namespace lathe::worker {

// `model` and `batch` must outlive it.
class LossHead {
 public:
  // Chunks have about `chunk_elements` logits; two fp32 buffers of that size live at once.
  LossHead(const Model& model, const PackedBatch& batch, int64_t chunk_elements);

  // Next chunk of x [T, H], the input of the final norm. With dx [T, H] given (defined) its rows
  // of the chunk get dL/dx, and unembedding gradients are added to `gradients`. Returns whether
  // rows remain. A batch with gspo is swept twice: its ratios need all of a datum's logprobs.
  bool RunChunk(const at::Tensor& x, at::Tensor dx, std::vector<AdapterGradients*>& gradients);

  // [E] fp32 on the model's device, valid once RunChunk has returned false.
  const at::Tensor& logprobs() const { return logprobs_; }
  const at::Tensor& losses() const { return losses_; }

 private:
  // Losses of the entries [begin, end); returns dL/dp.
  at::Tensor Evaluate(int64_t begin, int64_t end);
  std::vector<Segment> ChunkSegments(int64_t begin, int64_t end) const;
  // From logprobs_: the mean log ratio of each gspo datum.
  void ComputeSequenceRatios();

  const Model& model_;
  const PackedBatch& batch_;
  int64_t chunk_rows_;
  bool is_first_sweep_;  // of two: logprobs only
  int64_t next_row_ = 0;
  at::Tensor logprobs_;
  at::Tensor losses_;
  at::Tensor sequence_log_ratio_;  // [E], defined after the first of two sweeps
};

}  // namespace lathe::worker
