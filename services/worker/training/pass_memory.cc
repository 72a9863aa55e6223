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

// Widths of a layer's activations.
struct Widths {
  explicit Widths(const LayerSpec& layer)
      : heads(layer.attention.num_heads),
        q(heads * layer.attention.head_dim),
        kv(layer.attention.num_kv_heads * layer.attention.head_dim),
        i(layer.intermediate_size) {}
  int64_t heads, q, kv, i;
};

int64_t NumOutputNorms(const LayerSpec& layer) {
  return (layer.attention_output_norm == kNoRow ? 0 : 1) +
         (layer.mlp_output_norm == kNoRow ? 0 : 1);
}

// With torch: the scores. With our kernel: the buffer that each thread gathers of a sequence, which
// may be the whole pass. It has the queries that share a KV head, their gradients and the gradients
// of their outputs.
int64_t AttentionBackwardNumbers(const AttentionSpec& attention, int64_t cpu_threads) {
  if (cpu_threads == 0) return kTorchAttentionTile * attention.num_heads;
  return 3 * attention.num_heads / attention.num_kv_heads * attention.head_dim * cpu_threads;
}

// The MLP and the attention run one after the other. Both need the residual stream, its gradient
// and the norms' gradients.
int64_t BackwardNumbers(const LayerSpec& layer, int64_t h, int64_t cpu_threads) {
  const Widths w(layer);
  const int64_t attention =
      5 * w.q + 6 * w.kv + AttentionBackwardNumbers(layer.attention, cpu_threads);
  // An output's norm runs before the MLP's or attention's other temporaries are gone.
  const int64_t output_norm = NumOutputNorms(layer) > 0 ? h : 0;
  return 7 * h + output_norm + std::max(5 * w.i, attention);
}

int64_t ForwardNumbers(const LayerSpec& layer, int64_t h, int64_t cpu_threads) {
  const Widths w(layer);
  const int64_t scores = cpu_threads > 0 ? 0 : kTorchAttentionTile * w.heads;
  return 6 * h + 4 * w.q + 4 * w.kv + 4 * w.i + scores;
}

}  // namespace

PassMemory::PassMemory(const DecoderSpec& model, int64_t head_chunk_elements, int64_t cpu_threads)
    : num_layers_(model.num_layers()),
      // Logits, and their rounded copy or gradient.
      head_bytes_(2 * kFloat * std::max(head_chunk_elements, model.vocab_size)),
      checkpoint_bytes_(kFloat * model.hidden_size),
      kept_bytes_(num_layers_ + 1) {
  const int64_t h = model.hidden_size;
  for (const LayerSpec& layer : model.layers) {
    forward_numbers_ = std::max(forward_numbers_, ForwardNumbers(layer, h, cpu_threads));
    backward_numbers_ = std::max(backward_numbers_, BackwardNumbers(layer, h, cpu_threads));
    const Widths w(layer);
    // Input, q/k/v, attention output and its log-sum-exp, residual after attention, gate and up;
    // inputs of the norms of outputs.
    saved_bytes_.push_back(
        kFloat * ((2 + NumOutputNorms(layer)) * h + 2 * w.q + 2 * w.kv + w.heads + 2 * w.i));
  }
  for (int64_t n = num_layers_ - 1; n >= 0; --n) {
    kept_bytes_[n] = kept_bytes_[n + 1] + saved_bytes_[n];
  }
  // A recomputed layer holds all its saved activations during its backward step.
  int64_t largest = 0;
  for (int64_t n = 1; n <= num_layers_; ++n) {
    largest = std::max(largest, saved_bytes_[n - 1]);
    kept_bytes_[n] = std::max(kept_bytes_[n], largest);
  }
}

// A forward step needs less than a backward step.
int64_t PassMemory::StepBytesPerToken(const PassShape& shape) const {
  const int64_t lora = 6 * shape.max_lora_rank;  // three linears on one input, forward and backward
  return kFloat * ((shape.wants_gradient ? backward_numbers_ : forward_numbers_) + lora);
}

int64_t PassMemory::Bytes(const PassShape& shape, int64_t num_checkpointed) const {
  int64_t per_token = kIndexBytesPerToken + StepBytesPerToken(shape);
  if (shape.wants_gradient) {
    per_token += num_checkpointed * checkpoint_bytes_ + kept_bytes_[num_checkpointed];
  }
  return head_bytes_ + shape.num_tokens * per_token + shape.num_entries * kBytesPerEntry +
         shape.gradient_bytes;
}

int64_t PassMemory::FewestCheckpointed(const PassShape& shape, int64_t limit) const {
  if (!shape.wants_gradient) return 0;
  int64_t layers = 0;
  while (layers < num_layers_ && Bytes(shape, layers) > limit) ++layers;
  return layers;
}

}  // namespace lathe::worker
