#include "services/worker/training/pass_memory.h"

#include <algorithm>

// Legend: h hidden size, q and kv widths of queries and of keys (or values), i width of the MLP.
namespace lathe::worker {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Tokens, positions and bounds of their entries, on host and device.
constexpr int64_t kIndexBytesPerToken = 48;
// Indices, loss inputs, logprobs, losses and slopes, on host and device.
constexpr int64_t kBytesPerEntry = 128;
// Scores, probabilities and their gradients for a tile of queries, in attention by torch.
constexpr int64_t kTorchAttentionTile = 256 * 4;

}  // namespace

PassMemory::PassMemory(const ModelSpec& model, int64_t head_chunk_elements, int64_t cpu_threads)
    : model_(model),
      // Logits, and their rounded copy or gradient.
      head_bytes_(2 * kFloat * std::max(head_chunk_elements, model.vocab_size)),
      cpu_threads_(cpu_threads) {}

int64_t PassMemory::SavedBytesPerToken() const {
  const int64_t q = model_.num_heads * model_.head_dim;
  const int64_t kv = model_.num_kv_heads * model_.head_dim;
  // Input, q/k/v, attention output and its log-sum-exp, residual after attention, gate and up.
  return kFloat * (2 * model_.hidden_size + 2 * q + 2 * kv + model_.num_heads +
                   2 * model_.intermediate_size);
}

int64_t PassMemory::CheckpointBytesPerToken() const { return kFloat * model_.hidden_size; }

// With torch: the scores. With our kernel: the buffer that each thread gathers of a sequence, which
// may be the whole pass. It has the queries that share a KV head, their gradients and the gradients
// of their outputs.
int64_t PassMemory::AttentionBackwardNumbersPerToken() const {
  if (cpu_threads_ == 0) return kTorchAttentionTile * model_.num_heads;
  return 3 * model_.num_heads / model_.num_kv_heads * model_.head_dim * cpu_threads_;
}

// The MLP and the attention run one after the other. Both need the residual stream, its gradient
// and the norms' gradients. A forward step needs less.
int64_t PassMemory::StepBytesPerToken(const PassShape& shape) const {
  const int64_t h = model_.hidden_size;
  const int64_t q = model_.num_heads * model_.head_dim;
  const int64_t kv = model_.num_kv_heads * model_.head_dim;
  const int64_t i = model_.intermediate_size;
  const int64_t lora = 6 * shape.max_lora_rank;  // three linears on one input, forward and backward
  if (!shape.wants_gradient) {
    const int64_t scores = cpu_threads_ > 0 ? 0 : kTorchAttentionTile * model_.num_heads;
    return kFloat * (6 * h + 4 * q + 4 * kv + 4 * i + lora + scores);
  }
  const int64_t attention = 5 * q + 6 * kv + AttentionBackwardNumbersPerToken();
  return kFloat * (7 * h + std::max(5 * i, attention) + lora);
}

int64_t PassMemory::Bytes(const PassShape& shape, int64_t num_checkpointed) const {
  int64_t per_token = kIndexBytesPerToken + StepBytesPerToken(shape);
  if (shape.wants_gradient) {
    // A recomputed layer holds all its saved activations during its backward step.
    const int64_t num_saved = std::max<int64_t>(1, model_.num_layers - num_checkpointed);
    per_token += num_checkpointed * CheckpointBytesPerToken() + num_saved * SavedBytesPerToken();
  }
  return head_bytes_ + shape.num_tokens * per_token + shape.num_entries * kBytesPerEntry +
         shape.gradient_bytes;
}

int64_t PassMemory::FewestCheckpointed(const PassShape& shape, int64_t limit) const {
  if (!shape.wants_gradient) return 0;
  int64_t layers = 0;
  while (layers < model_.num_layers && Bytes(shape, layers) > limit) ++layers;
  return layers;
}

}  // namespace lathe::worker
