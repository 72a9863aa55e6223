// Hot file, free of torch: attention of one query token over a blocked KV cache, on a CPU.
//
// Of each kv head a block holds keys [head_dim, kKernelBlockTokens] and values
// [kKernelBlockTokens, head_dim]: both products run over whole vectors, whatever the head size.
#pragma once

#include <cstdint>

namespace lathe::worker {

inline constexpr int64_t kKernelBlockTokens = 16;

// One kv head of one sequence, and the query heads that share it.
struct DecodeTask {
  const float* q;         // [num_q_heads, head_dim], contiguous
  float* out;             // same
  const float* keys;      // this head's part of block 0; the next block is `block_stride` floats on
  const float* values;    // same
  const int32_t* blocks;  // the sequence's block table
  int64_t num_tokens;     // attended, the query's own included
  int64_t num_q_heads;
  int64_t head_dim;
  int64_t block_stride;
  float scale;  // of the scores
};

// Floats of scratch memory that AttendDecode needs.
inline int64_t DecodeScratchSize(int64_t num_tokens) {
  const int64_t num_blocks = (num_tokens + kKernelBlockTokens - 1) / kKernelBlockTokens;
  return 2 * num_blocks * kKernelBlockTokens;
}

// Reads keys and values in place. The order of the sums depends on this sequence alone, so
// neighbours never change the result.
void AttendDecode(const DecodeTask& task, float* scratch);

// Key and value [head_dim] of one token to its `place` in this head's part of a block.
void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                float* block_keys, float* block_values);

}  // namespace lathe::worker
