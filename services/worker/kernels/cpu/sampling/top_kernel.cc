#include "services/worker/kernels/cpu/sampling/top_kernel.h"

#include <algorithm>
#include <numeric>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

LATHE_SIMD_CLONES
void TopOf(std::span<const float> values, std::span<int32_t> indices) {
  if (indices.empty()) return;
  constexpr int64_t kChunk = 256;
  const auto is_larger = [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  // The front of the heap is the smallest of the largest values so far.
  std::iota(indices.begin(), indices.end(), 0);
  std::make_heap(indices.begin(), indices.end(), is_larger);
  const auto n = static_cast<int64_t>(values.size());
  for (auto begin = static_cast<int64_t>(indices.size()); begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk);
    // Most chunks have none: a later value must be larger, not equal.
    if (!(MaxOfRange(values.data() + begin, end - begin) > values[indices.front()])) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (!(values[i] > values[indices.front()])) continue;
      std::pop_heap(indices.begin(), indices.end(), is_larger);
      indices.back() = static_cast<int32_t>(i);
      std::push_heap(indices.begin(), indices.end(), is_larger);
    }
  }
  std::sort_heap(indices.begin(), indices.end(), is_larger);
}

}  // namespace lathe::worker
