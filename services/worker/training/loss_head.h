// From final hidden states to losses and back, a chunk of rows at a time: the logits of a whole
// batch never exist.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/layers/logprobs.h"
#include "services/worker/models/model.h"
#include "services/worker/training/packed_batch.h"

namespace lathe::worker {

// Rows whose gradient is known to be zero beforehand (prompts, forward_only) go through the forward
// direction only. A row's results and gradients do not depend on how rows are cut into chunks, and
// its gradients reach the adapter in row order.
//
// Ranks of axis tp, each with the logits of its own tokens, exchange what makes probabilities of
// them once per chunk, and sum dL/dx once. All have the same results.
//
// `model` and `batch` must outlive it.
class LossHead {
 public:
  // Chunks have at most `chunk_elements` logits (4 bytes each), but at least one row.
  LossHead(const Model& model, const PackedBatch& batch, int64_t chunk_elements);

  // How often RunHalfChunk is to be called.
  int64_t num_half_chunks() const;

  // Next half of a chunk of x [T, H], the input of the final norm: forward, or backward if it wants
  // gradients. With dx [T, H] given (defined) it has dL/dx once nothing remains, and unembedding
  // gradients are added to `gradients`. Returns whether something remains.
  bool RunHalfChunk(const at::Tensor& x, at::Tensor dx, std::vector<AdapterGradients*>& gradients);

  // [E] fp32 on the host, valid once RunHalfChunk has returned false.
  const at::Tensor& logprobs() const { return logprobs_; }
  const at::Tensor& losses() const { return losses_; }

 private:
  struct Chunk {
    std::vector<int64_t> rows;  // ascending
    bool wants_gradient = false;
  };
  // Rows of one datum whose loss couples them, as [begin, end) of a list of rows.
  using Span = std::pair<int64_t, int64_t>;

  // What the backward half of a chunk takes from its forward half.
  struct Pending {
    at::Tensor h;       // rows of the chunk after the final norm
    at::Tensor logits;  // [n, V], V of this rank
    SoftmaxStats stats;
    RowTargets targets;
    std::vector<Segment> segments;
  };

  Pending Forward(const Chunk& chunk, const at::Tensor& x);
  // Leaves in dx what comes before the final norm's backward step, this rank's share of it.
  void Backward(const Chunk& chunk, Pending pending, at::Tensor dx,
                std::vector<AdapterGradients*>& gradients) const;
  // Makes dL/dx of what the chunks have left in dx.
  void FinishBackward(const at::Tensor& x, at::Tensor dx) const;

  void PlanChunks(int64_t max_rows);
  // Cuts `rows` into chunks of similar size, none of them inside one of `spans`.
  void AddChunks(const std::vector<int64_t>& rows, const std::vector<Span>& spans, int64_t max_rows,
                 bool wants_gradient);
  std::vector<Segment> SegmentsOf(const Chunk& chunk) const;
  RowTargets TargetsOf(const Chunk& chunk) const;
  void KeepLogprobs(const Chunk& chunk, const std::vector<float>& logprobs);
  // dL/dp of the chunk's entries.
  std::vector<float> Slopes(const Chunk& chunk) const;
  void EvaluateLosses();

  const Model& model_;
  const PackedBatch& batch_;
  std::vector<Chunk> chunks_;
  size_t next_chunk_ = 0;
  std::optional<Pending> pending_;  // of chunk next_chunk_
  at::Tensor logprobs_;
  at::Tensor losses_;
};

}  // namespace lathe::worker
