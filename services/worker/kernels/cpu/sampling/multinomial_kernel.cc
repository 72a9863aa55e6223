#include "services/worker/kernels/cpu/sampling/multinomial_kernel.h"

#include <algorithm>
#include <vector>

#include "services/worker/kernels/cpu/sampling/philox.h"
#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {
namespace {

constexpr int64_t kStretch = 512;  // tokens per partial sum
constexpr uint32_t kStream = 1;    // last word of the counter; GumbelMax uses 0

// Sums in lanes, so that the order is the same on every CPU.
LATHE_INLINE double SumOf(const float* weights, int64_t n) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weights[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += weights[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// ends[s] is the sum of the weights of stretches 0 … s.
LATHE_SIMD_CLONES
void SumStretches(std::span<const float> weights, std::span<double> ends) {
  const auto n = static_cast<int64_t>(weights.size());
  double end = 0;
  for (size_t stretch = 0; stretch < ends.size(); ++stretch) {
    const int64_t begin = static_cast<int64_t>(stretch) * kStretch;
    end += SumOf(weights.data() + begin, std::min(kStretch, n - begin));
    ends[stretch] = end;
  }
}

// Returns a uniform number in (0, 1) with 53 bits.
double Uniform(uint64_t seed, uint32_t position, uint32_t index) {
  const std::array<uint32_t, 4> bits = Philox({index, position, 0, kStream}, seed);
  const uint64_t high = (uint64_t{bits[0]} << 32 | bits[1]) >> 12;
  return (static_cast<double>(high) + 0.5) * 0x1p-52;
}

}  // namespace

void SampleMultinomial(std::span<const float> weights, uint64_t seed, uint32_t position,
                       std::span<int32_t> tokens) {
  const auto n = static_cast<int64_t>(weights.size());
  std::vector<double> ends((n + kStretch - 1) / kStretch);
  SumStretches(weights, ends);
  for (size_t index = 0; index < tokens.size(); ++index) {
    const double place = Uniform(seed, position, static_cast<uint32_t>(index)) * ends.back();
    // The first stretch that ends behind the place. A stretch without weight is never selected.
    const auto found = std::upper_bound(ends.begin(), ends.end() - 1, place);
    const int64_t begin = (found - ends.begin()) * kStretch;
    double reached = found == ends.begin() ? 0 : *(found - 1);
    int64_t token = begin;
    // Rounding may put the place behind the stretch's last weight, which is then taken.
    for (int64_t i = begin; i < std::min(n, begin + kStretch) && reached <= place; ++i) {
      if (weights[i] == 0) continue;
      reached += weights[i];
      token = i;
    }
    tokens[index] = static_cast<int32_t>(token);
  }
}

}  // namespace lathe::worker
