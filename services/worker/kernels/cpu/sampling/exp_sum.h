// The sum in softmax, always in the same order: sampled log-probabilities equal those of training
// to the last bit. For kernels only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

// Returns the sum over i of exp((x[i] - max) · factor), where max is the largest x. With
// kKeepsWeights, writes the summands to `weights`. Adds neighbours in fp32 lanes and stretches of
// them in fp64.
template <bool kKeepsWeights>
LATHE_INLINE double ExpSum(const float* x, int64_t n, float max, float factor, float* weights) {
  constexpr int64_t kLanes = 32;
  constexpr int64_t kStretch = 32 * kLanes;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t end = std::min(n, begin + kStretch);
    float lanes[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float weight = FastExp((x[i + lane] - max) * factor);
        if (kKeepsWeights) weights[i + lane] = weight;
        lanes[lane] += weight;
      }
    }
    for (int64_t lane = 0; i < end; ++i, ++lane) {
      const float weight = FastExp((x[i] - max) * factor);
      if (kKeepsWeights) weights[i] = weight;
      lanes[lane] += weight;
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    total += lanes[0];
  }
  return total;
}

}  // namespace lathe::worker
