// Estimates a training pass's peak memory from the model's shape. Free of torch.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/spec/model_part.h"

namespace lathe::worker {

// The sizes of a pass that determine its memory.
struct PassShape {
  int64_t num_tokens = 0;
  int64_t num_entries = 0;  // (position, target) pairs
  int64_t num_sequences = 0;
  int64_t gradient_bytes = 0;  // gradient buffers of all adapters
  int64_t max_lora_rank = 0;
  bool wants_gradient = false;
};

// How a pass computes.
struct PassCompute {
  int64_t cpu_threads = 0;  // 0 on another device
  // Projections, attention and the MLP's activations are bf16; the residual stream is fp32.
  bool is_bf16 = false;

  int64_t activation_bytes() const { return is_bf16 ? 2 : 4; }
};

// An upper bound, linear in tokens, entries and sequences. It covers activations that layers keep
// for the backward pass, temporaries of one layer step, a chunk of logits, and gradients. It
// excludes weights, adapters and the KV cache.
class PassMemory {
 public:
  // `head_chunk_elements`: logits per chunk.
  PassMemory(const DecoderSpec& model, int64_t head_chunk_elements, const PassCompute& compute);

  // Bytes per token that a layer keeps: all that its backward step reads, or, if checkpointed, its
  // input.
  int64_t SavedBytesPerToken(int64_t layer) const { return saved_bytes_[layer]; }
  int64_t CheckpointBytesPerToken() const { return checkpoint_bytes_; }

  // Peak bytes if the backward pass recomputes the first `num_checkpointed` layers.
  int64_t Bytes(const PassShape& shape, int64_t num_checkpointed) const;

  // Returns the smallest number of checkpointed layers for which the pass needs at most `limit`
  // bytes; all layers if it never fits.
  int64_t FewestCheckpointed(const PassShape& shape, int64_t limit) const;

 private:
  int64_t StepBytesPerToken(const PassShape& shape) const;

  const int64_t num_layers_;
  const int64_t head_bytes_;
  const int64_t checkpoint_bytes_;
  // Flash attention's sums, for each sequence and beside them: it rounds lengths up.
  int64_t sequence_bytes_ = 0;
  int64_t flash_bytes_ = 0;
  // Per token: temporaries of the largest step.
  int64_t forward_bytes_ = 0;
  int64_t backward_bytes_ = 0;
  std::vector<int64_t> saved_bytes_;  // by layer
  // Bytes per token of saved activations, by the number of checkpointed layers.
  std::vector<int64_t> kept_bytes_;
};

}  // namespace lathe::worker
