// How a block of the KV cache lies in memory, of each kv head: keys [head_dim, kKvBlockTokens] and
// values [kKvBlockTokens, head_dim], so that scores and weighed sums both run over whole vectors.
#pragma once

#include <cstdint>
#include <cstring>

namespace lathe::worker {

inline constexpr int64_t kKvBlockTokens = 16;

// Key and value [head_dim] of one token to its `place` in this head's part of a block.
inline void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                       float* block_keys, float* block_values) {
  for (int64_t i = 0; i < head_dim; ++i) block_keys[i * kKvBlockTokens + place] = key[i];
  std::memcpy(block_values + place * head_dim, value,
              static_cast<size_t>(head_dim) * sizeof(float));
}

}  // namespace lathe::worker
