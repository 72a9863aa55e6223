// How many bytes a training pass takes at its peak, from the model's shape. Free of torch.
#pragma once

#include <cstdint>

#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// What decides the memory of one pass.
struct PassShape {
  int64_t num_tokens = 0;
  int64_t num_entries = 0;     // (position, target) pairs
  int64_t gradient_bytes = 0;  // of all adapters' gradient buffers
  int64_t max_lora_rank = 0;
  bool wants_gradient = false;
};

// An upper bound, linear in tokens and entries: activations that layers keep for their backward
// steps, what one layer step makes and frees again, a chunk of logits, and gradients. Weights,
// adapters and the KV cache are not in it.
class PassMemory {
 public:
  // `head_chunk_elements`: logits of one chunk. `cpu_threads`: that compute; 0 on another device.
  PassMemory(const ModelSpec& model, int64_t head_chunk_elements, int64_t cpu_threads);

  // Bytes one layer keeps for a token: all its backward step reads, or (checkpointed) its input.
  int64_t SavedBytesPerToken() const;
  int64_t CheckpointBytesPerToken() const;

  // Peak bytes when the first `num_checkpointed` layers are computed again in the backward pass.
  int64_t Bytes(const PassShape& shape, int64_t num_checkpointed) const;

  // The fewest checkpointed layers with which the pass takes at most `limit` bytes; all of them
  // when it does not fit even so.
  int64_t FewestCheckpointed(const PassShape& shape, int64_t limit) const;

 private:
  int64_t StepBytesPerToken(const PassShape& shape) const;
  int64_t AttentionBackwardNumbersPerToken() const;

  const ModelSpec model_;
  const int64_t head_bytes_;
  const int64_t cpu_threads_;
};

}  // namespace lathe::worker
