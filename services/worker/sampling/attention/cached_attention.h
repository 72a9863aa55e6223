// Attention of new rows over the KV cache.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "services/worker/layers/attention_context.h"
#include "services/worker/sampling/attention/attention_plan.h"
#include "services/worker/sampling/attention/paged_device_attention.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Attention of one pass, for all layers in turn. Writes the new keys and values to the cache. Each
// row then attends to its sequence up to the row's own position. `cache` and the sequences must
// outlive this object.
class CachedAttention : public AttentionContext {
 public:
  CachedAttention(KvCache& cache, std::vector<CachedRows> rows, at::Device device);

  at::ScalarType dtype() const override { return is_paged() ? at::kBFloat16 : at::kFloat; }
  at::Tensor Attend(int64_t layer, const AttentionSpec& spec, const QkvHeads& raw,
                    const QkPreparation& preparation) override;

 private:
  // Returns true if a GPU's kernels attend to pages.
  bool is_paged() const {
    return !device_.is_cpu() && cache_.attention_arithmetic() == MatmulArithmetic::kBf16;
  }
  const PagedPass& PagedPassFor(const AttentionSpec& spec);
  const AttentionPlan& PlanFor(const at::Tensor& q, const at::Tensor& k);
  // Attends after PrepareQk, for unpaged caches.
  at::Tensor AttendPrepared(int64_t layer, const AttentionSpec& spec, const QkHeads& qk,
                            const at::Tensor& v);
  at::Tensor AttendChunks(int64_t layer, const AttentionSpec& spec, const QkHeads& qk,
                          const at::Tensor& v);
  const at::Tensor& Blocks(size_t sequence);

  KvCache& cache_;
  const std::vector<CachedRows> rows_;
  const at::Device device_;
  std::optional<AttentionPlan> plan_;  // for the CPU kernels; made by the first layer
  // A pass for each window, for a paged cache; made by the first layer with the window.
  std::map<int64_t, PagedPass> paged_passes_;
  bool is_decode_ = true;           // one row per sequence
  at::Tensor new_blocks_;           // [T] int64: destination blocks of the new rows
  at::Tensor new_places_;           // [T] int64
  std::vector<at::Tensor> blocks_;  // block table by sequence; made when first needed
};

// AttendByKernel as torch operations, for one query row per sequence. Used on devices without a
// kernel, and by tests.
at::Tensor DecodeByGather(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& keys,
                          const at::Tensor& values, const std::vector<CachedRows>& rows);

}  // namespace lathe::worker
