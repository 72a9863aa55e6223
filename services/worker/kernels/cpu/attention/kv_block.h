// Layout of a KV cache block, per KV head: keys [head_dim, kKvBlockTokens] and values
// [kKvBlockTokens, head_dim], so that scores and weighted sums both use whole vectors. In bf16 both
// consist of words of two numbers for two-element dot products. Keys are [head_dim / 2,
// kKvBlockTokens] words of neighbours in a head. Values are [kKvBlockTokens / 2, head_dim] words of
// neighbouring tokens, the earlier one in the low half.
#pragma once

#include <cstdint>
#include <cstring>

namespace lathe::worker {

inline constexpr int64_t kKvBlockTokens = 16;
inline constexpr int64_t kKvWordNumbers = 2;

// Stores key and value [head_dim] of one token at `place` in this head's part of a block.
inline void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                       float* block_keys, float* block_values) {
  for (int64_t i = 0; i < head_dim; ++i) block_keys[i * kKvBlockTokens + place] = key[i];
  std::memcpy(block_values + place * head_dim, value,
              static_cast<size_t>(head_dim) * sizeof(float));
}

// The same, rounded to bf16; `head_dim` is even. The first token of a word writes zero for the
// second. A kernel may read that before it is written, and its weight of zero would not hide a NaN.
// Requires CpuHasBf16().
void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                int32_t* block_keys, int32_t* block_values);

}  // namespace lathe::worker
