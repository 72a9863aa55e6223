// Attention over a GPU's KV cache of bf16 pages, by FlashInfer's kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/layers/attention_context.h"
#include "services/worker/sampling/attention/attention_plan.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Host-side description of a pass: its rows and their pages.
struct PagedBatch {
  PagedRows rows;
  std::vector<int32_t> pages;             // of all sequences, concatenated
  std::vector<int32_t> last_page_tokens;  // [S]
  std::vector<int32_t> slots;  // [T]: destinations of keys and values, see PrepareAndWriteTask

  // Adds the last `num_rows` tokens of a sequence.
  void Add(const CachedRows& sequence);
  // Adds a row whose result is unused. Its key and value go to `page`.
  void AddPadding(int32_t page);
};

// PagedBatch on the device, as int32.
struct PagedInputs {
  at::Tensor row_starts;
  at::Tensor page_starts;
  at::Tensor pages;
  at::Tensor last_page_tokens;
  at::Tensor slots;
};

// State of a pass that all layers with one window share.
struct PagedPass {
  PagedShape shape;
  PagedInputs inputs;
  PagedPlan plan;
  at::Tensor float_workspace;
  at::Tensor int_workspace;
};

PagedShape PagedShapeOf(const AttentionSpec& spec);

// Plans a pass that no CUDA graph records.
PagedPass PlanPagedPass(const PagedShape& shape, const PagedBatch& batch, at::Device device);

// `cache` must outlive this object. Queues work on torch's current stream without waiting.
class PagedDeviceAttention : public AttentionContext {
 public:
  // Returns the pass of layers like this one. The pass must outlive the work that is queued.
  using PassFor = std::function<const PagedPass&(const AttentionSpec& spec)>;

  PagedDeviceAttention(KvCache& cache, PassFor pass_for)
      : cache_(cache), pass_for_(std::move(pass_for)) {}

  at::ScalarType dtype() const override { return at::kBFloat16; }
  at::Tensor Attend(int64_t layer, const AttentionSpec& spec, const QkvHeads& raw,
                    const QkPreparation& preparation) override;

 private:
  KvCache& cache_;
  const PassFor pass_for_;
};

}  // namespace lathe::worker
