// Attention over the KV cache by the kernels of the CPU, with the bits of a training pass.
#pragma once

#include <cstdint>
#include <span>

#include "services/worker/aten.h"
#include "services/worker/layers/qk_norm.h"
#include "services/worker/sampling/attention_plan.h"

namespace lathe::worker {

// What chunks and groups of queries of this shape are worth on this machine's threads.
AttentionPlan PlanForKernel(std::span<const CachedRows> rows, int64_t num_heads,
                            int64_t num_kv_heads, MatmulArithmetic arithmetic);

// q [T, Hq, D] fp32, the rows of each sequence in turn, over the cache of one layer, of fp32 or
// bf16 (KvCache::keys and values) -> [T, Hq, D].
at::Tensor AttendByKernel(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const AttentionPlan& plan);

// Rows before norm and rope.
struct RawRows {
  const QkHeads& heads;
  const at::Tensor& v;  // [T, Hk, D]
  const QkNormWeights& weights;
  const RopeTable& rope;
  const at::Tensor& positions;  // [T] int64
};

// NormRope, then the new keys and values to the cache, then AttendByKernel, each kv head's rows by
// one thread: nothing goes from processor to processor in between. The plan is not cut.
at::Tensor NormRopeAttendByKernel(const RawRows& rows, const at::Tensor& keys,
                                  const at::Tensor& values, const AttentionPlan& plan);

}  // namespace lathe::worker
