// How a block of the KV cache lies in memory, of each kv head: keys [head_dim, kKvBlockTokens] and
// values [kKvBlockTokens, head_dim], so that scores and weighed sums both run over whole vectors.
// In bf16 both are words of two numbers, as two-element dot products take them: keys [head_dim / 2,
// kKvBlockTokens] of neighbours in a head, values [kKvBlockTokens / 2, head_dim] of neighbouring
// tokens, the earlier one in the low half.
#pragma once

#include <cstdint>
#include <cstring>

namespace lathe::worker {

inline constexpr int64_t kKvBlockTokens = 16;
inline constexpr int64_t kKvWordNumbers = 2;

// Key and value [head_dim] of one token to its `place` in this head's part of a block.
inline void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                       float* block_keys, float* block_values) {
  for (int64_t i = 0; i < head_dim; ++i) block_keys[i * kKvBlockTokens + place] = key[i];
  std::memcpy(block_values + place * head_dim, value,
              static_cast<size_t>(head_dim) * sizeof(float));
}

// The same, rounded to bf16; `head_dim` is even. The first token of a word leaves zero for the
// second: that may be read before it is written, with a weight of zero, which does not silence NaN.
// Needs CpuHasBf16().
void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                int32_t* block_keys, int32_t* block_values);

}  // namespace lathe::worker
