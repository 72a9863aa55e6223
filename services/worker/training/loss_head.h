// Computes losses from final hidden states, and their gradients, one chunk of rows at a time. So
// the logits of a whole batch never exist in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/layers/logprobs.h"
#include "services/worker/models/model.h"
#include "services/worker/training/packed_batch.h"

namespace lathe::worker {

// Rows whose gradient is always zero (prompts, forward_only) run the forward half only. A row's
// results and gradients do not depend on the cut into chunks. Gradients are added to the adapter's
// in row order.
//
// Each rank of axis tp has the logits of its own tokens. The ranks exchange softmax statistics once
// per chunk and sum dL/dx once. All have the same results.
//
// `model` and `batch` must outlive it.
class LossHead {
 public:
  // Chunks have at most `chunk_elements` logits (4 bytes each), but at least one row.
  LossHead(const Model& model, const PackedBatch& batch, int64_t chunk_elements);

  // Number of calls of RunHalfChunk.
  int64_t num_half_chunks() const;

  // Runs the next half of a chunk of x [T, H], the input of the final norm: the forward half, or
  // the backward half if the chunk has gradients. `dx` [T, H] is undefined if no gradients are
  // needed. After the last call it holds dL/dx; unembedding gradients are added to `gradients`.
  // Returns true if steps remain.
  bool RunHalfChunk(const at::Tensor& x, at::Tensor dx, std::vector<AdapterGradients*>& gradients);

  // [E] fp32 on the host, valid after RunHalfChunk has returned false.
  const at::Tensor& logprobs() const { return logprobs_; }
  const at::Tensor& losses() const { return losses_; }

 private:
  struct Chunk {
    std::vector<int64_t> rows;  // ascending
    bool wants_gradient = false;
  };
  // Rows of one datum whose loss couples them, as [begin, end) of a list of rows.
  using Span = std::pair<int64_t, int64_t>;

  // State of a chunk between its forward and its backward half.
  struct Pending {
    at::Tensor h;       // rows of the chunk after the final norm
    at::Tensor logits;  // [n, V], this rank's V
    SoftmaxStats stats;
    RowTargets targets;
    std::vector<Segment> segments;
  };

  Pending Forward(const Chunk& chunk, const at::Tensor& x);
  // Writes to dx this rank's share of the gradient of the final norm's output.
  void Backward(const Chunk& chunk, Pending pending, at::Tensor dx,
                std::vector<AdapterGradients*>& gradients) const;
  // Computes dL/dx in place: sums dx over tp and runs the final norm's backward step.
  void FinishBackward(const at::Tensor& x, at::Tensor dx) const;

  void PlanChunks(int64_t max_rows);
  // Divides `rows` into chunks of similar size. No chunk begins or ends inside one of `spans`.
  void AddChunks(const std::vector<int64_t>& rows, const std::vector<Span>& spans, int64_t max_rows,
                 bool wants_gradient);
  std::vector<Segment> SegmentsOf(const Chunk& chunk) const;
  RowTargets TargetsOf(const Chunk& chunk) const;
  void KeepLogprobs(const Chunk& chunk, const std::vector<float>& logprobs);
  // Returns dL/dp of the chunk's entries.
  std::vector<float> Slopes(const Chunk& chunk) const;
  void EvaluateLosses();

  const Model& model_;
  const PackedBatch& batch_;
  std::vector<Chunk> chunks_;
  size_t next_chunk_ = 0;
  std::optional<Pending> pending_;  // chunk next_chunk_ after its forward half
  at::Tensor logprobs_;
  at::Tensor losses_;
};

}  // namespace lathe::worker
