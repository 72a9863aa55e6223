// Causal attention of query rows on a CPU, free of torch, over all earlier keys or a window of
// them. Results are the same for keys from a training pass and from blocks of the KV cache. They
// are also the same whether the rows come all at once, in chunks or one by one.
//
// Each query row takes the keys in blocks of 64, whose borders are absolute positions. Scores are
// chains over the head's numbers, maxima and sums are carried from block to block, and values are
// added one key after another (arXiv:2205.14135). A result does not depend on other rows.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Rows of several heads. Number i of head h of row t is data[t * row_stride + h * head_stride + i].
struct HeadRows {
  float* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  float* at(int64_t row, int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
  // The same rows and heads, counted from `row` and `head`.
  HeadRows From(int64_t row, int64_t head) const {
    return {at(row, head), row_stride, head_stride};
  }
};

// Queries of one sequence at consecutive positions, for the heads that share one KV head.
struct AttentionQueries {
  HeadRows q;              // row 0, head 0: the first query and its first head
  HeadRows out;            // same layout
  HeadRows log_sums;       // same layout: log2 of the sum of 2^(score log2(e)); data may be null
  int64_t first_position;  // position of row 0 in its sequence
  int64_t num_positions;   // any number; AttentionChunk gives an efficient one
  int64_t group;           // query heads per kv head
  int64_t head_dim;
  float scale;         // factor of the scores
  int64_t window = 0;  // keys that a query sees, its own the last; 0: all up to its own
};

// Returns the position of the first key that the query at `position` sees.
inline int64_t FirstKey(int64_t position, int64_t window) {
  return window == 0 || window > position ? 0 : position + 1 - window;
}

// Keys and values of a sequence from its first position on, for one KV head.
struct KeyRows {
  const float* keys;
  const float* values;
  int64_t key_stride;  // between rows
  int64_t value_stride;
};

// Keys and values in KV cache blocks (kv_block.h), of floats or of words (two bf16 numbers).
template <typename Element>
struct KeyBlocks {
  const Element* keys;  // this head's part of block 0; blocks are `block_stride` elements apart
  const Element* values;
  const int32_t* blocks;  // the sequence's block table
  int64_t block_stride;
};

// Number of keys per block; blocks begin at its multiples.
inline constexpr int64_t kAttentionKeyBlock = 64;

// The queries and the keys of one sequence.
template <typename Element>
struct AttentionMember {
  AttentionQueries queries;
  KeyBlocks<Element> keys;
};

// Number of positions per call for a longer sequence: enough to reuse keys and values while they
// are in the cache. The bf16 value is larger: more fits, and packing keys and values costs
// relatively more.
int64_t AttentionChunk(int64_t group);
int64_t AttentionChunkBf16(int64_t group);

// Returns the scratch size in floats for `num_rows` query rows: positions times heads.
int64_t AttentionScratchSize(int64_t num_rows, int64_t head_dim);

void Attend(const AttentionQueries& queries, const KeyRows& keys, float* scratch);

// Attend for each member of a group. Members differ only in rows, positions and block table. The
// first `num_shared` keys are the same for all and read once, but once per member with a window.
// `num_shared` is a multiple of kAttentionKeyBlock, and no query precedes any of them.
void AttendGroup(std::span<const AttentionMember<float>> members, int64_t num_shared,
                 float* scratch);

// The same with bf16 products and fp32 sums. Queries, keys, values and the weights of a block are
// rounded, all else is fp32. `head_dim` is even. Requires CpuHasBf16().
void AttendBf16(const AttentionQueries& queries, const KeyRows& keys, float* scratch);
void AttendGroupBf16(std::span<const AttentionMember<int32_t>> members, int64_t num_shared,
                     float* scratch);

}  // namespace lathe::worker
