#include "services/worker/training/pass_memory.h"

#include <algorithm>

// Legend: h hidden size, q and kv widths of queries and of keys (or values), i width of the MLP.
namespace lathe::worker {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kBf16 = 2;
// Flash attention's backward step gives each block of a GPU its own sums of dq if there are fewer
// pairs of sequences and heads than multiprocessors. It rounds each sequence up to a tile of rows.
constexpr int64_t kMostMultiprocessors = 160;
constexpr int64_t kFlashTileRows = 128;
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

// Bytes per row of a sequence in flash attention's sums of dq and of out · dout, once.
int64_t FlashRowBytes(const AttentionSpec& attention) {
  return kFloat * attention.num_heads * (attention.head_dim + 1);
}

// Bytes per token of attention's backward step beside its inputs and results. With torch's
// operations: the scores. With flash attention: its sums, once for each part of the keys that has
// blocks of its own, and dk and dv for each query head. With our kernel: the buffer that each
// thread gathers of a sequence, which may be the whole pass. It has the queries that share a KV
// head, their gradients and the gradients of their outputs.
int64_t AttentionBackwardBytes(const AttentionSpec& attention, const PassCompute& compute) {
  const int64_t heads = attention.num_heads;
  if (compute.cpu_threads > 0) {
    return kFloat * 3 * heads / attention.num_kv_heads * attention.head_dim * compute.cpu_threads;
  }
  if (!compute.is_bf16) return kFloat * kTorchAttentionTile * heads;
  const int64_t num_parts = (kMostMultiprocessors + heads - 1) / heads;
  return num_parts * FlashRowBytes(attention) + 2 * kBf16 * heads * attention.head_dim;
}

// The MLP and the attention run one after the other. Both need the residual stream, its gradient
// and the norms' gradients.
int64_t BackwardBytes(const LayerSpec& layer, int64_t h, const PassCompute& compute) {
  const Widths w(layer);
  const int64_t attention = (5 * w.q + 6 * w.kv) * compute.activation_bytes() +
                            AttentionBackwardBytes(layer.attention, compute);
  // An output's norm runs before the MLP's or attention's other temporaries are gone.
  const int64_t output_norm = NumOutputNorms(layer) > 0 ? h : 0;
  return kFloat * (7 * h + output_norm) + std::max(5 * w.i * compute.activation_bytes(), attention);
}

int64_t ForwardBytes(const LayerSpec& layer, int64_t h, const PassCompute& compute) {
  const Widths w(layer);
  const bool has_scores = compute.cpu_threads == 0 && !compute.is_bf16;
  const int64_t scores = has_scores ? kFloat * kTorchAttentionTile * w.heads : 0;
  return kFloat * 6 * h + compute.activation_bytes() * 4 * (w.q + w.kv + w.i) + scores;
}

}  // namespace

PassMemory::PassMemory(const DecoderSpec& model, int64_t head_chunk_elements,
                       const PassCompute& compute)
    : num_layers_(model.num_layers()),
      // Logits, and their rounded copy or gradient.
      head_bytes_(2 * kFloat * std::max(head_chunk_elements, model.vocab_size)),
      checkpoint_bytes_(kFloat * model.hidden_size),
      kept_bytes_(num_layers_ + 1) {
  const int64_t h = model.hidden_size;
  for (const LayerSpec& layer : model.layers) {
    forward_bytes_ = std::max(forward_bytes_, ForwardBytes(layer, h, compute));
    backward_bytes_ = std::max(backward_bytes_, BackwardBytes(layer, h, compute));
    if (compute.is_bf16) {
      // (T + S · tile) · ceil(multiprocessors / (S · heads)) for S sequences, without the product
      // of T and the quotient, which is above.
      const int64_t tile_bytes = kFlashTileRows * FlashRowBytes(layer.attention);
      sequence_bytes_ = std::max(sequence_bytes_, tile_bytes);
      flash_bytes_ =
          std::max(flash_bytes_, tile_bytes * kMostMultiprocessors / layer.attention.num_heads);
    }
    const Widths w(layer);
    // Input, residual after attention, inputs of the norms of outputs and attention's log-sum-exp;
    // q/k/v, attention output, gate and up.
    saved_bytes_.push_back(kFloat * ((2 + NumOutputNorms(layer)) * h + w.heads) +
                           compute.activation_bytes() * 2 * (w.q + w.kv + w.i));
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
  return (shape.wants_gradient ? backward_bytes_ : forward_bytes_) + kFloat * lora;
}

int64_t PassMemory::Bytes(const PassShape& shape, int64_t num_checkpointed) const {
  int64_t per_pass = head_bytes_ + shape.num_entries * kBytesPerEntry + shape.gradient_bytes;
  int64_t per_token = kIndexBytesPerToken + StepBytesPerToken(shape);
  if (shape.wants_gradient) {
    per_token += num_checkpointed * checkpoint_bytes_ + kept_bytes_[num_checkpointed];
    per_pass += flash_bytes_ + shape.num_sequences * sequence_bytes_;
  }
  return per_pass + shape.num_tokens * per_token;
}

int64_t PassMemory::FewestCheckpointed(const PassShape& shape, int64_t limit) const {
  if (!shape.wants_gradient) return 0;
  int64_t layers = 0;
  while (layers < num_layers_ && Bytes(shape, layers) > limit) ++layers;
  return layers;
}

}  // namespace lathe::worker
