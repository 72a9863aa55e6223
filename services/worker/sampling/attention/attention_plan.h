// Plan of which rows of a pass attend to the KV cache together. It is made once for all layers,
// with the costs of layers without a window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/sampling/cache/kv_cache.h"

namespace lathe::worker {

// One sequence's rows in a pass: the last `num_rows` tokens of `kv`.
struct CachedRows {
  const KvSequence* kv = nullptr;
  int64_t num_rows = 0;
  int64_t first_position() const { return kv->length - num_rows; }
};

// Consecutive rows of one sequence.
struct RowChunk {
  const KvSequence* kv;
  int64_t row;  // index of the first row in the pass
  int64_t num_rows;
  int64_t position;  // of the first row
};

// Chunks [begin, end). They all read the first `num_shared` keys of their sequences from the same
// blocks.
struct ChunkGroup {
  int64_t begin;
  int64_t end;
  int64_t num_shared;  // a multiple of kAttentionKeyBlock, 0 for one chunk
  int64_t num_pairs;   // (query, visible key) pairs: the cost
};

struct AttentionPlan {
  std::vector<RowChunk> chunks;
  std::vector<ChunkGroup> groups;  // most expensive first
  int64_t num_pairs = 0;
  int64_t num_rows = 0;
  int64_t most_rows = 0;  // in any one group
  // True if a sequence has several chunks: then all keys must be written before any chunk attends.
  bool is_cut = false;

  // Returns the number of pairs in a layer with this window, or a bound on it.
  int64_t NumPairs(int64_t window) const {
    return window == 0 ? num_pairs : std::min(num_pairs, num_rows * window);
  }

  std::span<const RowChunk> ChunksOf(const ChunkGroup& group) const {
    return std::span(chunks).subspan(group.begin, group.end - group.begin);
  }
};

struct AttentionPlanLimits {
  int64_t chunk_rows;     // maximum, per chunk and per group
  int64_t group_members;  // maximum per group; a smaller value leaves more groups for the threads
};

// Groups one-row sequences with the same leading blocks as far as that saves reading keys. The
// grouping does not change a single bit of the results.
AttentionPlan PlanAttention(std::span<const CachedRows> rows, const AttentionPlanLimits& limits);

}  // namespace lathe::worker
