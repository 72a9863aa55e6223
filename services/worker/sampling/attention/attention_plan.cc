#include "services/worker/sampling/attention/attention_plan.h"

#include <algorithm>

#include "services/worker/kernels/cpu/attention/attention_kernel.h"

namespace lathe::worker {
namespace {

// Returns the number of leading tokens that `a` and `b` read from the same cache blocks. Counts
// only whole key blocks before the first row of either chunk.
int64_t NumShared(const RowChunk& a, const RowChunk& b) {
  const auto [end, other_end] = std::mismatch(a.kv->blocks.begin(), a.kv->blocks.end(),
                                              b.kv->blocks.begin(), b.kv->blocks.end());
  const int64_t same = (end - a.kv->blocks.begin()) * KvCache::kBlockTokens;
  return std::min({same, a.position, b.position}) / kAttentionKeyBlock * kAttentionKeyBlock;
}

// Returns the number of positions that the last row of `chunk` attends to.
int64_t End(const RowChunk& chunk) { return chunk.position + chunk.num_rows; }

// Returns the group of neighboring chunks that starts with chunk `begin`. Each further member saves
// one read of the shared keys, but may reduce their number. The group grows while it saves more.
ChunkGroup GroupFrom(std::span<const RowChunk> chunks, int64_t begin,
                     const AttentionPlanLimits& limits) {
  const int64_t most = std::min(
      {static_cast<int64_t>(chunks.size()) - begin, limits.group_members, limits.chunk_rows});
  ChunkGroup group{.begin = begin, .end = begin + 1, .num_shared = 0, .num_pairs = 0};
  for (int64_t size = 2; size <= most; ++size) {
    int64_t shared = NumShared(chunks[begin], chunks[begin + size - 1]);
    if (size > 2) shared = std::min(shared, group.num_shared);
    if (shared * (size - 1) <= group.num_shared * (size - 2)) break;
    group.num_shared = shared;
    group.end = begin + size;
  }
  return group;
}

}  // namespace

AttentionPlan PlanAttention(std::span<const CachedRows> rows, const AttentionPlanLimits& limits) {
  AttentionPlan plan;
  std::vector<RowChunk> single;
  int64_t first_row = 0;
  for (const CachedRows& sequence : rows) {
    for (int64_t i = 0; i < sequence.num_rows; i += limits.chunk_rows) {
      const RowChunk chunk = {.kv = sequence.kv,
                              .row = first_row + i,
                              .num_rows = std::min(limits.chunk_rows, sequence.num_rows - i),
                              .position = sequence.first_position() + i};
      (sequence.num_rows == 1 ? single : plan.chunks).push_back(chunk);
    }
    plan.is_cut = plan.is_cut || sequence.num_rows > limits.chunk_rows;
    first_row += sequence.num_rows;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(plan.chunks.size()); ++i) {
    plan.groups.push_back({.begin = i, .end = i + 1, .num_shared = 0, .num_pairs = 0});
  }
  // Sorting by block table makes sequences with long common prefixes neighbors.
  std::stable_sort(single.begin(), single.end(), [](const RowChunk& a, const RowChunk& b) {
    return a.kv->blocks < b.kv->blocks;
  });
  int64_t begin = static_cast<int64_t>(plan.chunks.size());
  plan.chunks.insert(plan.chunks.end(), single.begin(), single.end());
  for (; begin < static_cast<int64_t>(plan.chunks.size()); begin = plan.groups.back().end) {
    plan.groups.push_back(GroupFrom(plan.chunks, begin, limits));
  }
  for (ChunkGroup& group : plan.groups) {
    int64_t num_rows = 0;
    for (const RowChunk& chunk : plan.ChunksOf(group)) {
      group.num_pairs += chunk.num_rows * End(chunk);
      num_rows += chunk.num_rows;
    }
    plan.num_pairs += group.num_pairs;
    plan.num_rows += num_rows;
    plan.most_rows = std::max(plan.most_rows, num_rows);
  }
  std::stable_sort(
      plan.groups.begin(), plan.groups.end(),
      [](const ChunkGroup& a, const ChunkGroup& b) { return a.num_pairs > b.num_pairs; });
  return plan;
}

}  // namespace lathe::worker
