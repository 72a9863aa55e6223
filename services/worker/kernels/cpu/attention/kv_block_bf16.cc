#include "services/worker/kernels/cpu/attention/attention_bf16_tile.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"

namespace lathe::worker {

using namespace attention;  // NOLINT: rounds like the kernels that read it

LATHE_BF16_TARGET
void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                int32_t* block_keys, int32_t* block_values) {
  const bool is_second = place % kKvWordNumbers != 0;
  int32_t* values = block_values + place / kKvWordNumbers * head_dim;
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    const int64_t size = std::min(kLanes, head_dim - i);
    alignas(64) int32_t words[kLanes];
    StoreWords(words, RoundPair(LoadPart(key + i, size), Lanes{}));
    for (int64_t word = 0; word < size / kKvWordNumbers; ++word) {
      block_keys[(i / kKvWordNumbers + word) * kKvBlockTokens + place] = words[word];
    }
    const Lanes numbers = LoadPart(value + i, size);
    StoreWords(words, is_second ? ZipPair(Lanes{}, numbers) : ZipPair(numbers, Lanes{}));
    for (int64_t n = 0; n < size; ++n) {
      values[i + n] = is_second ? (values[i + n] & 0xffff) | words[n] : words[n];
    }
  }
}

}  // namespace lathe::worker
