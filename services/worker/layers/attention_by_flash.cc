// Attention of training on a GPU by the flash attention in torch (arXiv:2307.08691).
#include "services/worker/layers/attention.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include "services/worker/torch/gpu.h"

namespace lathe::worker {
namespace {

struct Bounds {
  at::Tensor cu_seqlens;  // [S + 1] int32 on the device, of the sequences that have rows
  int64_t longest = 0;
};

Bounds BoundsOf(const std::vector<int64_t>& cu_seqlens, at::Device device) {
  Bounds bounds;
  std::vector<int32_t> starts = {0};
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
    if (length == 0) continue;
    bounds.longest = std::max(bounds.longest, length);
    starts.push_back(static_cast<int32_t>(cu_seqlens[s + 1]));
  }
  bounds.cu_seqlens = at::tensor(starts, at::kInt).to(device, at::kInt, /*non_blocking=*/true);
  return bounds;
}

std::optional<int64_t> KeysBefore(const AttentionSpec& spec) {
  return spec.window == 0 ? std::nullopt : std::optional(spec.window - 1);
}

// Turns torch's global setting on while this exists. Without it the order of sums in dq differs
// between runs. One thread computes for a model, and a mutex holds back those of other models.
class Deterministic {
 public:
  Deterministic() : lock_(mutex_), before_(at::globalContext().deterministicAlgorithms()) {
    // Torch would otherwise fill each new tensor.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(before_, false); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  static inline std::mutex mutex_;
  const std::lock_guard<std::mutex> lock_;
  const bool before_;
};

}  // namespace

bool HasFlashAttention(const at::Tensor& q, MatmulArithmetic arithmetic) {
  return IsGpu(q.device()) && arithmetic == MatmulArithmetic::kBf16 && q.size(2) % 8 == 0 &&
         q.size(2) <= 256;
}

AttentionOutput CausalAttentionByFlash(const AttentionSpec& spec, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v,
                                       const std::vector<int64_t>& cu_seqlens) {
  const Bounds bounds = BoundsOf(cu_seqlens, q.device());
  auto [out, log_sums, rng_state, unused, mask] = at::_flash_attention_forward(
      q.to(at::kBFloat16), k.to(at::kBFloat16), v.to(at::kBFloat16), bounds.cu_seqlens,
      bounds.cu_seqlens, bounds.longest, bounds.longest, /*dropout_p=*/0, /*is_causal=*/true,
      /*return_debug_mask=*/false, spec.scale, KeysBefore(spec),
      spec.window == 0 ? std::nullopt : std::optional<int64_t>(0));
  return {.out = out.to(q.scalar_type()), .log_sums = std::move(log_sums)};
}

AttentionGradients CausalAttentionBackwardByFlash(const AttentionSpec& spec, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const std::vector<int64_t>& cu_seqlens,
                                                  const AttentionOutput& output,
                                                  const at::Tensor& dout) {
  const Bounds bounds = BoundsOf(cu_seqlens, q.device());
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const std::array<at::Tensor, 5> in = {rounded(dout), rounded(q), rounded(k), rounded(v),
                                        rounded(output.out)};
  // Without dropout there is no state of random numbers.
  const at::Tensor none = at::empty({0}, q.options().dtype(at::kLong));
  const Deterministic deterministic;
  auto [dq, dk, dv] = at::_flash_attention_backward(
      in[0], in[1], in[2], in[3], in[4], output.log_sums, bounds.cu_seqlens, bounds.cu_seqlens,
      bounds.longest, bounds.longest, /*dropout_p=*/0, /*is_causal=*/true, none, none, spec.scale,
      KeysBefore(spec), spec.window == 0 ? std::nullopt : std::optional<int64_t>(0));
  return {.dq = dq.to(q.scalar_type()), .dk = dk.to(q.scalar_type()), .dv = dv.to(q.scalar_type())};
}

}  // namespace lathe::worker
