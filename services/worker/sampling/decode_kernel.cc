#include "services/worker/sampling/decode_kernel.h"

#include <algorithm>

#include "services/worker/sampling/vector_math.h"

namespace lathe::worker {
namespace {

constexpr int kMaxHeadDim = 512;  // no known model has larger heads

// Scores to weights that sum to 1.
LATHE_INLINE void Softmax(float* scores, int64_t n) {
  float max = scores[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < n; ++i) max = std::max(max, scores[i]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    scores[i] = FastExp(scores[i] - max);
    sum += scores[i];
  }
  const float normalizer = 1.0f / sum;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) scores[i] *= normalizer;
}

// out = sum of weights[token] · value[token].
template <int kHeadDim>
LATHE_INLINE void SumValues(const DecodeTask& task, const float* weights, float* out) {
  const int64_t d = kHeadDim > 0 ? kHeadDim : task.head_dim;
  const int64_t n = task.num_tokens;
  // Small heads are one or two vectors: several running sums, or each addition waits for the last.
  constexpr int kSums = kHeadDim == 16 ? 4 : 1;
  float sums[kSums][kHeadDim > 0 ? kHeadDim : kMaxHeadDim] = {};
  for (int64_t first = 0; first < n; first += kKernelBlockTokens) {
    const int64_t block = task.blocks[first / kKernelBlockTokens];
    const float* value = task.values + block * task.block_stride;
    const int64_t end = std::min(n, first + kKernelBlockTokens);
    int64_t token = first;
    for (; token + kSums <= end; token += kSums, value += kSums * d) {
      for (int part = 0; part < kSums; ++part) {
#pragma omp simd
        for (int64_t i = 0; i < d; ++i)
          sums[part][i] += weights[token + part] * value[part * d + i];
      }
    }
    for (; token < end; ++token, value += d) {
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) sums[0][i] += weights[token] * value[i];
    }
  }
  for (int part = 1; part < kSums; ++part) {
    for (int64_t i = 0; i < d; ++i) sums[0][i] += sums[part][i];
  }
  std::copy(sums[0], sums[0] + d, out);
}

// A head size known to the compiler keeps sums in registers; 0: any size.
template <int kHeadDim>
LATHE_INLINE void Attend(const DecodeTask& task, float* scratch) {
  const int64_t d = kHeadDim > 0 ? kHeadDim : task.head_dim;
  const int64_t n = task.num_tokens;
  for (int64_t head = 0; head < task.num_q_heads; ++head) {
    const float* q = task.q + head * d;
    for (int64_t first = 0; first < n; first += kKernelBlockTokens) {
      const int64_t block = task.blocks[first / kKernelBlockTokens];
      const float* key = task.keys + block * task.block_stride;
      float scores[kKernelBlockTokens] = {};
      for (int64_t i = 0; i < d; ++i) {
#pragma omp simd
        for (int64_t token = 0; token < kKernelBlockTokens; ++token) {
          scores[token] += q[i] * key[i * kKernelBlockTokens + token];
        }
      }
      // Places beyond the last token hold no key yet; Softmax does not look at them.
      for (int64_t token = 0; token < kKernelBlockTokens; ++token) {
        scratch[first + token] = scores[token] * task.scale;
      }
    }
    Softmax(scratch, n);
    SumValues<kHeadDim>(task, scratch, task.out + head * d);
  }
}

}  // namespace

LATHE_SIMD_CLONES
void AttendDecode(const DecodeTask& task, float* scratch) {
  switch (task.head_dim) {
    case 16:
      return Attend<16>(task, scratch);
    case 64:
      return Attend<64>(task, scratch);
    case 128:
      return Attend<128>(task, scratch);
    default:
      return Attend<0>(task, scratch);
  }
}

}  // namespace lathe::worker
