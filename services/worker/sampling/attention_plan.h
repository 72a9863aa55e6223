// Which rows of a pass attend to the KV cache together. Made once for all layers; no torch work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// The rows one sequence has in a pass: the last `num_rows` tokens of `kv`.
struct CachedRows {
  const KvSequence* kv = nullptr;
  int64_t num_rows = 0;
  int64_t first_position() const { return kv->length - num_rows; }
};

// Neighbouring rows of one sequence.
struct RowChunk {
  const KvSequence* kv;
  int64_t row;  // of the pass
  int64_t num_rows;
  int64_t position;  // of the first
};

// Chunks [begin, end) that read the first `num_shared` keys of their sequences from the same
// blocks.
struct ChunkGroup {
  int64_t begin;
  int64_t end;
  int64_t num_shared;  // a multiple of kAttentionKeyBlock, 0 for one chunk
  int64_t num_pairs;   // of a query and a key that it has: what it costs
};

struct AttentionPlan {
  std::vector<RowChunk> chunks;
  std::vector<ChunkGroup> groups;  // costly ones first
  int64_t num_pairs = 0;
  int64_t most_rows = 0;  // of a group
  // Whether one sequence has several chunks: keys of the earlier ones are there before.
  bool is_cut = false;

  std::span<const RowChunk> ChunksOf(const ChunkGroup& group) const {
    return std::span(chunks).subspan(group.begin, group.end - group.begin);
  }
};

struct AttentionPlanLimits {
  int64_t chunk_rows;     // of one chunk, and of one group
  int64_t group_members;  // of one group; fewer leave more groups for threads
};

// Sequences with one row whose first blocks are the same form groups: as many as save the reading
// of keys. What is grouped changes no bit of a result.
AttentionPlan PlanAttention(std::span<const CachedRows> rows, const AttentionPlanLimits& limits);

}  // namespace lathe::worker
