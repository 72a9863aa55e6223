// Attention over a GPU's KV cache of bf16 pages, by FlashInfer's kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/attention/attention_plan.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Host-side description of a pass: its rows and their pages.
struct PagedBatch {
  PagedRows rows;
  std::vector<int32_t> pages;             // of all sequences, concatenated
  std::vector<int32_t> last_page_tokens;  // [S]
  std::vector<int32_t> slots;  // [T]: destinations of keys and values, see NormRopeWriteTask

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

// State of a pass that all layers share.
struct PagedPass {
  PagedShape shape;
  PagedInputs inputs;
  PagedPlan plan;
  at::Tensor float_workspace;
  at::Tensor int_workspace;
};

// Plans a pass that no CUDA graph records.
PagedPass PlanPagedPass(const PagedShape& shape, const PagedBatch& batch, at::Device device);

// `pass` and `cache` must outlive this object. Queues work on torch's current stream without
// waiting.
class PagedDeviceAttention : public AttentionContext {
 public:
  PagedDeviceAttention(KvCache& cache, const PagedPass& pass) : cache_(cache), pass_(pass) {}

  at::Tensor NormRopeAttend(int64_t layer, const QkHeads& heads, const at::Tensor& v,
                            const QkNormWeights& weights, const RopeTable& rope,
                            const at::Tensor& positions) override;

 private:
  KvCache& cache_;
  const PagedPass& pass_;
};

}  // namespace lathe::worker
