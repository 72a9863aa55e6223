#include "services/worker/sampling/attention/cached_attention_by_kernel.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "services/worker/kernels/cpu/attention/attention_kernel.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"
#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/attention_tasks.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

constexpr int64_t kCacheLineFloats = 16;

// Inline capacity for the members of a group. Only larger groups, which are rare, allocate.
constexpr size_t kMembersInPlace = 8;

// One layer's part of the cache. Element is float, or int32_t for words of two bf16 numbers.
template <typename Element>
struct LayerBlocks {
  Element* keys;
  Element* values;
  int64_t block_stride;
  int64_t head_stride;

  LayerBlocks(const at::Tensor& layer_keys, const at::Tensor& layer_values)
      : keys(layer_keys.mutable_data_ptr<Element>()),
        values(layer_values.mutable_data_ptr<Element>()),
        block_stride(layer_keys.stride(0)),
        head_stride(layer_keys.stride(1)) {}

  KeyBlocks<Element> Of(const KvSequence& kv, int64_t kv_head) const {
    return {.keys = keys + kv_head * head_stride,
            .values = values + kv_head * head_stride,
            .blocks = kv.blocks.data(),
            .block_stride = block_stride};
  }
};

void AttendMembers(std::span<const AttentionMember<float>> members, int64_t num_shared,
                   float* scratch) {
  AttendGroup(members, num_shared, scratch);
}
void AttendMembers(std::span<const AttentionMember<int32_t>> members, int64_t num_shared,
                   float* scratch) {
  AttendGroupBf16(members, num_shared, scratch);
}

// Rows before their preparation.
struct RawRows {
  HeadRows k, v;
  int64_t head_dim;
  PreparationPointers pointers;

  // Writes heads [head, head + num_heads) of `num_rows` rows of x, prepared, to y [num_rows,
  // num_heads, D]. Starts with `row`.
  void Prepare(const HeadRows& x, const float* weight, int64_t row, int64_t num_rows, int64_t head,
               int64_t num_heads, float* y) const {
    PrepareHeadsRows({.x = x.at(row, head),
                      .x_stride = x.row_stride,
                      .weight = weight,
                      .cos = pointers.cos,
                      .sin = pointers.sin,
                      .positions = pointers.cos == nullptr ? nullptr : pointers.positions + row,
                      .y = y,
                      .num_heads = num_heads,
                      .head_dim = head_dim,
                      .eps = pointers.eps},
                     0, num_rows);
  }
};

// Writes the new keys and values of one kv head to the cache. `key` [D] is scratch space.
template <typename Element>
void WriteChunk(const RawRows& rows, const RowChunk& chunk, int64_t kv_head,
                const LayerBlocks<Element>& layer, float* key) {
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const int64_t row = chunk.row + i;
    const int64_t position = chunk.position + i;
    rows.Prepare(rows.k, rows.pointers.k_weight, row, 1, kv_head, 1, key);
    const int64_t offset = chunk.kv->blocks[position / KvCache::kBlockTokens] * layer.block_stride +
                           kv_head * layer.head_stride;
    StoreToken(key, rows.v.at(row, kv_head), rows.head_dim, position % KvCache::kBlockTokens,
               layer.keys + offset, layer.values + offset);
  }
}

// Attends with q [T, Hq, D]. If `rows` is null, q is prepared and the cache holds all keys.
// Otherwise prepares q here and writes the new keys and values to the cache.
template <typename Element>
at::Tensor Attend(const AttentionSpec& spec, const at::Tensor& q, const RawRows* rows,
                  const at::Tensor& keys, const at::Tensor& values, const AttentionPlan& plan) {
  const LayerBlocks<Element> layer(keys, values);
  const int64_t num_kv_heads = keys.size(1);
  const int64_t head_dim = q.size(2);
  const int64_t group = q.size(1) / num_kv_heads;
  const int64_t row_size = group * head_dim;
  at::Tensor out = at::empty(q.sizes(), q.options());
  const HeadRows q_rows = HeadRowsOf(q);
  const HeadRows out_rows = HeadRowsOf(out);
  const auto attend = [&](int64_t task, float* scratch) {
    const ChunkGroup& chunks = plan.groups[static_cast<size_t>(task / num_kv_heads)];
    const int64_t kv_head = task % num_kv_heads;
    float* key = scratch;
    float* queries = key + (head_dim + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
    absl::InlinedVector<AttentionMember<Element>, kMembersInPlace> members;
    for (const RowChunk& chunk : plan.ChunksOf(chunks)) {
      HeadRows own_q = q_rows.From(chunk.row, kv_head * group);
      if (rows != nullptr) {
        WriteChunk(*rows, chunk, kv_head, layer, key);
        rows->Prepare(q_rows, rows->pointers.q_weight, chunk.row, chunk.num_rows, kv_head * group,
                      group, queries);
        own_q = {.data = queries, .row_stride = row_size, .head_stride = head_dim};
        queries += chunk.num_rows * row_size;
      }
      members.push_back({.queries = {.q = own_q,
                                     .out = out_rows.From(chunk.row, kv_head * group),
                                     .log_sums = {},
                                     .first_position = chunk.position,
                                     .num_positions = chunk.num_rows,
                                     .group = group,
                                     .head_dim = head_dim,
                                     .scale = static_cast<float>(spec.scale),
                                     .window = spec.window},
                         .keys = layer.Of(*chunk.kv, kv_head)});
    }
    AttendMembers(members, chunks.num_shared,
                  scratch + (plan.most_rows * row_size + head_dim + 2 * kCacheLineFloats) /
                                kCacheLineFloats * kCacheLineFloats);
  };
  RunTasks(static_cast<int64_t>(plan.groups.size()) * num_kv_heads,
           plan.NumPairs(spec.window) * q.size(1) * head_dim,
           AttentionScratchSize(plan.most_rows * group, head_dim) + plan.most_rows * row_size +
               head_dim + 2 * kCacheLineFloats,
           attend);
  return out;
}

}  // namespace

AttentionPlan PlanForKernel(std::span<const CachedRows> rows, int64_t num_heads,
                            int64_t num_kv_heads, MatmulArithmetic arithmetic) {
  const int64_t group = num_heads / num_kv_heads;
  const int64_t tasks = static_cast<int64_t>(rows.size()) * num_kv_heads;
  return PlanAttention(
      rows, {.chunk_rows = arithmetic == MatmulArithmetic::kBf16 ? AttentionChunkBf16(group)
                                                                 : AttentionChunk(group),
             .group_members = tasks / (kTasksPerThread * ComputeTeam().num_threads())});
}

at::Tensor AttendByKernel(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& keys,
                          const at::Tensor& values, const AttentionPlan& plan) {
  return keys.scalar_type() == at::kInt ? Attend<int32_t>(spec, q, nullptr, keys, values, plan)
                                        : Attend<float>(spec, q, nullptr, keys, values, plan);
}

at::Tensor PrepareAndAttendByKernel(const AttentionSpec& spec, const QkvHeads& raw,
                                    const QkPreparation& preparation, const at::Tensor& keys,
                                    const at::Tensor& values, const AttentionPlan& plan) {
  TORCH_CHECK(!plan.is_cut, "a sequence's keys are written by several tasks");
  const RawRows rows = {.k = HeadRowsOf(raw.qk.k),
                        .v = HeadRowsOf(raw.v),
                        .head_dim = raw.qk.q.size(2),
                        .pointers = PointersOf(preparation)};
  return keys.scalar_type() == at::kInt ? Attend<int32_t>(spec, raw.qk.q, &rows, keys, values, plan)
                                        : Attend<float>(spec, raw.qk.q, &rows, keys, values, plan);
}

}  // namespace lathe::worker
