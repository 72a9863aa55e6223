// Attention over the KV cache of a GPU by FlashInfer's kernels, for caches of bf16 pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/attention_plan.h"
#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// What a pass says about its rows and their pages, on the host.
struct PagedBatch {
  PagedRows rows;
  std::vector<int32_t> pages;             // of all sequences in turn
  std::vector<int32_t> last_page_tokens;  // [S]
  std::vector<int32_t> slots;             // [T]: where keys and values go, see NormRopeWriteTask

  // The last `num_rows` tokens of a sequence.
  void Add(const CachedRows& sequence);
  // One row that nobody reads, with its key and value in `page`.
  void AddPadding(int32_t page);
};

// The same on the device, int32.
struct PagedInputs {
  at::Tensor row_starts;
  at::Tensor page_starts;
  at::Tensor pages;
  at::Tensor last_page_tokens;
  at::Tensor slots;
};

// Everything of a pass that all layers share.
struct PagedPass {
  PagedShape shape;
  PagedInputs inputs;
  PagedPlan plan;
  at::Tensor float_workspace;
  at::Tensor int_workspace;
};

// Of a pass that is not recorded.
PagedPass PlanPagedPass(const PagedShape& shape, const PagedBatch& batch, at::Device device);

// `pass` and `cache` must outlive it. Queues work on torch's current stream, waits for nothing.
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
