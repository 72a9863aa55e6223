// Attention of new rows over the KV cache.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "services/worker/models/model.h"
#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// The rows one sequence has in a pass: the last `num_rows` tokens of `kv`.
struct CachedRows {
  const KvSequence* kv = nullptr;
  int64_t num_rows = 0;
  int64_t first_position() const { return kv->length - num_rows; }
};

// For one pass over the layers. Writes the new keys and values to the cache, then attends to all of
// each sequence up to the row's own position. `cache` and the sequences must outlive it.
class CachedAttention : public AttentionContext {
 public:
  CachedAttention(KvCache& cache, std::vector<CachedRows> rows, at::Device device);

  at::Tensor Attend(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) override;

 private:
  at::Tensor AttendChunks(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v);
  const at::Tensor& Blocks(size_t sequence);

  KvCache& cache_;
  const std::vector<CachedRows> rows_;
  const at::Device device_;
  bool is_decode_ = true;           // one row per sequence
  at::Tensor new_blocks_;           // [T] int64: where the new rows go
  at::Tensor new_places_;           // [T] int64
  std::vector<at::Tensor> blocks_;  // by sequence: its block table, made when first needed
};

// q [T, Hq, D] fp32, the rows of each sequence in turn, over the cache of one layer, of fp32 or
// bf16 -> [T, Hq, D]. By the kernels that training passes use, with the same bits; on a CPU only.
at::Tensor AttendCachedByKernel(const at::Tensor& q, const at::Tensor& keys,
                                const at::Tensor& values, const std::vector<CachedRows>& rows);

// The same by torch operations for one query row per sequence, for other devices and for tests.
at::Tensor DecodeByGather(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const std::vector<CachedRows>& rows);

}  // namespace lathe::worker
