#include "services/worker/kernels/cpu/decode_kernel.h"

#include <algorithm>
#include <cstring>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {
namespace {

constexpr int64_t kTokens = kKernelBlockTokens;

// As many numbers as the widest register holds; split where registers are narrower.
typedef float Lanes __attribute__((vector_size(sizeof(float) * kKernelBlockTokens)));
constexpr int64_t kLanes = kKernelBlockTokens;

// Scores to weights, not yet divided by their sum, which is returned.
LATHE_INLINE float Exponentiate(float* scores, int64_t n) {
  const float max = MaxOfRange(scores, n);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    scores[i] = FastExp(scores[i] - max);
    sum += scores[i];
  }
  return sum;
}

// Scores of kHeads query heads over the kBlocks blocks from `block` on, to `scores`
// [kHeads, stride]. Reads ahead: blocks lie anywhere in memory, so the processor cannot guess what
// comes next.
template <int kHeads, int kBlocks>
LATHE_INLINE void ScoreBlocks(const DecodeTask& task, const float* q, int64_t d, int64_t block,
                              float* scores, int64_t stride) {
  const int64_t last_block = (task.num_tokens - 1) / kTokens;
  const float* keys[kBlocks];
  const float* next_keys[kBlocks];
  const float* values[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t offset = task.blocks[block + b] * task.block_stride;
    const int64_t next = std::min(block + kBlocks + b, last_block);
    keys[b] = task.keys + offset;
    next_keys[b] = task.keys + task.blocks[next] * task.block_stride;
    values[b] = task.values + offset;
  }
  Lanes sums[kHeads][kBlocks] = {};
  for (int64_t i = 0; i < d; ++i) {
    for (int b = 0; b < kBlocks; ++b) {
      __builtin_prefetch(next_keys[b] + i * kTokens);
      __builtin_prefetch(values[b] + i * kTokens);
      Lanes key;
      std::memcpy(&key, keys[b] + i * kTokens, sizeof(key));
      for (int head = 0; head < kHeads; ++head) sums[head][b] += key * q[head * d + i];
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int b = 0; b < kBlocks; ++b) {
      sums[head][b] *= task.scale;
      std::memcpy(scores + head * stride + (block + b) * kTokens, &sums[head][b], sizeof(Lanes));
    }
  }
}

// Places beyond the last token hold no key yet: their scores mean nothing.
template <int kHeads>
LATHE_INLINE void Score(const DecodeTask& task, const float* q, int64_t d, float* scores,
                        int64_t stride) {
  const int64_t num_blocks = (task.num_tokens + kTokens - 1) / kTokens;
  int64_t block = 0;
  for (; block + 2 <= num_blocks; block += 2) {
    ScoreBlocks<kHeads, 2>(task, q, d, block, scores, stride);
  }
  if (block < num_blocks) ScoreBlocks<kHeads, 1>(task, q, d, block, scores, stride);
}

// Sums of values by `weights` [kHeads, stride], for a head size that fills whole vectors. Several
// sums are carried side by side, because one addition has to wait for the one before.
template <int kHeads, int kHeadDim>
LATHE_INLINE void WeighVectors(const DecodeTask& task, const float* weights, int64_t stride,
                               float* out) {
  constexpr int kVectors = kHeadDim / kLanes;
  constexpr int kChains = kVectors >= 4 ? 1 : 4 / kVectors;
  Lanes sums[kHeads][kChains][kVectors] = {};
  const auto add = [&](const float* value, int64_t token, int chain) LATHE_INLINE_LAMBDA {
    for (int vector = 0; vector < kVectors; ++vector) {
      Lanes values;
      std::memcpy(&values, value + vector * kLanes, sizeof(values));
      for (int head = 0; head < kHeads; ++head) {
        sums[head][chain][vector] += values * weights[head * stride + token];
      }
    }
  };
  for (int64_t first = 0; first < task.num_tokens; first += kTokens) {
    const float* value = task.values + task.blocks[first / kTokens] * task.block_stride;
    if (first + kTokens <= task.num_tokens) {
      for (int64_t token = 0; token < kTokens; token += kChains) {
        for (int chain = 0; chain < kChains; ++chain) {
          add(value + (token + chain) * kHeadDim, first + token + chain, chain);
        }
      }
    } else {
      for (int64_t token = first; token < task.num_tokens; ++token) {
        add(value + (token - first) * kHeadDim, token, 0);
      }
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int vector = 0; vector < kVectors; ++vector) {
      for (int chain = 1; chain < kChains; ++chain) {
        sums[head][0][vector] += sums[head][chain][vector];
      }
      std::memcpy(out + head * kHeadDim + vector * kLanes, &sums[head][0][vector], sizeof(Lanes));
    }
  }
}

// The same for one head of any size.
LATHE_INLINE void WeighAny(const DecodeTask& task, const float* weights, int64_t d, float* out) {
  std::fill(out, out + d, 0.0f);
  for (int64_t token = 0; token < task.num_tokens; ++token) {
    const float* value =
        task.values + task.blocks[token / kTokens] * task.block_stride + token % kTokens * d;
#pragma omp simd
    for (int64_t i = 0; i < d; ++i) out[i] += weights[token] * value[i];
  }
}

// kHeads query heads from `head` on. kHeadDim 0: any size.
template <int kHeads, int kHeadDim>
LATHE_INLINE void AttendHeads(const DecodeTask& task, int64_t head, float* scratch) {
  const int64_t d = kHeadDim > 0 ? kHeadDim : task.head_dim;
  const int64_t stride = DecodeScratchSize(task.num_tokens) / 2;
  float* out = task.out + head * d;
  Score<kHeads>(task, task.q + head * d, d, scratch, stride);
  float normalizers[kHeads];
  for (int i = 0; i < kHeads; ++i) {
    normalizers[i] = 1.0f / Exponentiate(scratch + i * stride, task.num_tokens);
  }
  if constexpr (kHeadDim > 0) {
    WeighVectors<kHeads, kHeadDim>(task, scratch, stride, out);
  } else {
    for (int i = 0; i < kHeads; ++i) WeighAny(task, scratch + i * stride, d, out + i * d);
  }
  for (int i = 0; i < kHeads; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < d; ++j) out[i * d + j] *= normalizers[i];
  }
}

// Two heads at a time share the reading of keys and values.
template <int kHeadDim>
LATHE_INLINE void Attend(const DecodeTask& task, float* scratch) {
  int64_t head = 0;
  for (; head + 2 <= task.num_q_heads; head += 2) AttendHeads<2, kHeadDim>(task, head, scratch);
  if (head < task.num_q_heads) AttendHeads<1, kHeadDim>(task, head, scratch);
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

void StoreToken(const float* key, const float* value, int64_t head_dim, int64_t place,
                float* block_keys, float* block_values) {
  for (int64_t i = 0; i < head_dim; ++i) block_keys[i * kTokens + place] = key[i];
  std::memcpy(block_values + place * head_dim, value, sizeof(float) * head_dim);
}

}  // namespace lathe::worker
