// Causal attention of query rows on a CPU, free of torch: the same numbers whether the keys
// are rows of a training pass or blocks of the KV cache, and whether the rows come all at once, in
// chunks or one by one.
//
// Of one query row the keys are taken in blocks of 64 whose borders are absolute positions: scores
// are chains over the head's numbers, maxima and sums are carried from block to block, values are
// added one key after another (arXiv:2205.14135). No number depends on other rows.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Rows of several heads: number i of head h of row t is data[t * row_stride + h * head_stride + i].
struct HeadRows {
  float* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  float* at(int64_t row, int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
};

// Queries of one sequence and the heads that share one kv head, at neighbouring positions.
struct AttentionQueries {
  HeadRows q;              // row 0, head 0: the first query and its first head
  HeadRows out;            // likewise
  HeadRows log_sums;       // likewise: log2 of the sum of 2^(score log2(e)); data may be null
  int64_t first_position;  // of row 0 in its sequence
  int64_t num_positions;   // any number; AttentionChunk says how many are fast
  int64_t group;           // query heads per kv head
  int64_t head_dim;
  float scale;  // of the scores
};

// Keys and values of a sequence from its first position on, one kv head.
struct KeyRows {
  const float* keys;
  const float* values;
  int64_t key_stride;  // from row to row
  int64_t value_stride;
};

// The same in the blocks of a KV cache (kv_block.h), of floats or of words: two bf16 numbers.
template <typename Element>
struct KeyBlocks {
  const Element* keys;  // this head's part of block 0; the next block is `block_stride` elements on
  const Element* values;
  const int32_t* blocks;  // the sequence's block table
  int64_t block_stride;
};

// Borders of the blocks that keys are taken in are multiples of this.
inline constexpr int64_t kAttentionKeyBlock = 64;

// Queries of one sequence and its keys.
template <typename Element>
struct AttentionMember {
  AttentionQueries queries;
  KeyBlocks<Element> keys;
};

// Positions that a call of a longer sequence should take: enough to use keys and values again while
// they are in the cache. Of bf16 more fit, and rearranging keys and values takes a larger part.
int64_t AttentionChunk(int64_t group);
int64_t AttentionChunkBf16(int64_t group);

// Floats of scratch memory for `num_rows` queries: positions times heads.
int64_t AttentionScratchSize(int64_t num_rows, int64_t head_dim);

void Attend(const AttentionQueries& queries, const KeyRows& keys, float* scratch);

// The same for each member of a group, which are alike in all but rows, positions and block table.
// All have the same first `num_shared` keys, read once for all of them: a multiple of
// kAttentionKeyBlock, none of them behind a query.
void AttendGroup(std::span<const AttentionMember<float>> members, int64_t num_shared,
                 float* scratch);

// The same with products of two bf16 numbers each and fp32 sums: queries, keys, values and the
// weights of a block are rounded, all else is fp32. `head_dim` is even; needs CpuHasBf16().
void AttendBf16(const AttentionQueries& queries, const KeyRows& keys, float* scratch);
void AttendGroupBf16(std::span<const AttentionMember<int32_t>> members, int64_t num_shared,
                     float* scratch);

}  // namespace lathe::worker
