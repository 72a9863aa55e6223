// CPU kernels for attention over the KV cache. They give the same bits as a training pass.
#pragma once

#include <cstdint>
#include <span>

#include "services/worker/layers/attention_context.h"
#include "services/worker/sampling/attention/attention_plan.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Plans with chunk and group sizes chosen for queries of this shape and this machine's threads.
AttentionPlan PlanForKernel(std::span<const CachedRows> rows, int64_t num_heads,
                            int64_t num_kv_heads, MatmulArithmetic arithmetic);

// Attends with q [T, Hq, D] fp32 over one layer's cache, fp32 or bf16 (KvCache::keys and values).
// The rows of each sequence are consecutive. Returns [T, Hq, D].
at::Tensor AttendByKernel(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& keys,
                          const at::Tensor& values, const AttentionPlan& plan);

// Applies PrepareQk, writes the new keys and values to the cache, then attends as AttendByKernel.
// One thread does all three steps of a kv head's rows, so no data moves between cores. `plan` must
// not be cut.
at::Tensor PrepareAndAttendByKernel(const AttentionSpec& spec, const QkvHeads& raw,
                                    const QkPreparation& preparation, const at::Tensor& keys,
                                    const at::Tensor& values, const AttentionPlan& plan);

}  // namespace lathe::worker
