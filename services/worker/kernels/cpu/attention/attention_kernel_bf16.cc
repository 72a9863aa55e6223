// Attention and the KV cache in bf16 for CPUs with AVX512-BF16.
#include <immintrin.h>

#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"

// Headers above keep the target of all files: other files may be linked with their functions.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")

#include "services/worker/kernels/cpu/attention/attention_backward.h"
#include "services/worker/kernels/cpu/attention/attention_bf16.h"
#include "services/worker/kernels/cpu/attention/attention_forward.h"

namespace lathe::worker {

using attention::Bf16;

void AttendBf16(const AttentionQueries& queries, const KeyRows& keys, float* scratch) {
  attention::AttendRows<Bf16>(queries, keys, scratch);
}

void AttendGroupBf16(std::span<const AttentionMember<int32_t>> members, int64_t num_shared,
                     float* scratch) {
  attention::AttendMembers<Bf16>(members, num_shared, scratch);
}

void AttendBackwardBf16(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                        float* scratch) {
  attention::BackwardPart<Bf16>(task, part, scratch);
}

void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                int32_t* block_keys, int32_t* block_values) {
  const bool is_second = place % kKvWordNumbers != 0;
  int32_t* values = block_values + place / kKvWordNumbers * head_dim;
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    const int64_t size = std::min(kLanes, head_dim - i);
    alignas(64) int32_t words[kLanes];
    Store(words, Bf16::Along({LoadPart(key + i, size)}));
    for (int64_t word = 0; word < size / kKvWordNumbers; ++word) {
      block_keys[(i / kKvWordNumbers + word) * kKvBlockTokens + place] = words[word];
    }
    const Floats numbers = LoadPart(value + i, size);
    Store(words, is_second ? Bf16::Across({Floats{}, numbers}) : Bf16::Across({numbers}));
    for (int64_t n = 0; n < size; ++n) {
      values[i + n] = is_second ? (values[i + n] & 0xffff) | words[n] : words[n];
    }
  }
}

}  // namespace lathe::worker
