// The attention of one layer. Free of torch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_format.h>

namespace lathe::worker {

inline constexpr int64_t kNoRope = -1;

// Layers of one model may differ. Weights and tables come with the call (layers/norms.h).
struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // of queries, keys and values
  double scale = 0;          // factor of q k^T
  // Number of tokens that a token attends to, itself the last; 0: itself and all before it.
  int64_t window = 0;
  bool has_qk_norm = false;  // an RMS norm of each head of q and k
  int64_t rope = kNoRope;    // index into the model's rope tables
  double soft_cap = 0;       // c tanh(score / c); 0: none. Not supported
  bool has_sinks = false;    // one more logit per head, without a value. Not supported
};

// Returns the number of (query, key) pairs of the first `length` tokens of a sequence.
inline int64_t NumPairs(int64_t length, int64_t window) {
  const int64_t growing = window == 0 ? length : std::min(length, window);
  return growing * (growing + 1) / 2 + (length - growing) * window;
}

// Returns the scale of most families.
inline double ScaleOf(int64_t head_dim) { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }

// Returns why the kernels cannot compute this attention, if they cannot.
inline absl::Status CheckAttention(const AttentionSpec& spec) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "config.json: num_attention_heads is %d, not a multiple of num_key_value_heads %d",
        spec.num_heads, spec.num_kv_heads));
  }
  // bf16 keeps pairs of a head's numbers, and rope rotates pairs.
  if (spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: head_dim is %d, supported are even numbers", spec.head_dim));
  }
  if (spec.window < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("config.json: sliding_window is %d, the least is 1", spec.window));
  }
  if (spec.soft_cap != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "config.json: attn_logit_softcapping is %g, supported is none", spec.soft_cap));
  }
  if (spec.has_sinks) {
    return absl::InvalidArgumentError(
        "config.json: the model has attention sinks, supported is none");
  }
  return absl::OkStatus();
}

}  // namespace lathe::worker
