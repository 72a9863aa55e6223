#include "services/worker/kernels/cpu/attention/attention_kernel.h"

#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"
#include "services/worker/kernels/cpu/attention/attention_variants.h"
#include "services/worker/kernels/cpu/attention/attention_vectors.h"

namespace lathe::worker {
namespace {

using namespace attention;  // NOLINT: the building blocks of this file

constexpr int64_t kChunkRows = 192;
constexpr int64_t kChunkRowsBf16 = 384;

}  // namespace

std::span<const Variant* const> attention::VariantsOfThisCpu() {
  static constexpr const Variant* kAll[] = {&kAvx512, &kAvx2, &kPlain};
  if (__builtin_cpu_supports("x86-64-v4")) return kAll;
  return std::span(kAll).subspan(__builtin_cpu_supports("x86-64-v3") ? 1 : 2);
}

int64_t AttentionChunk(int64_t group) { return std::max<int64_t>(1, kChunkRows / group); }
int64_t AttentionChunkBf16(int64_t group) { return std::max<int64_t>(1, kChunkRowsBf16 / group); }

// Both sizes are those of fp32; bf16 needs less.
int64_t AttentionScratchSize(int64_t num_rows, int64_t head_dim) {
  const int64_t padded_dim = RoundUp(head_dim, kLanes);
  return kTileRows * kKeyBlock + 2 * kKeyBlock * padded_dim +
         num_rows * (2 * padded_dim + kLanes + 1) + 4 * kLanes;
}

int64_t AttentionBackwardScratchSize(int64_t num_rows, int64_t head_dim) {
  return (5 * kKeyBlock + 3 * num_rows) * RoundUp(head_dim, kLanes) +
         2 * kBackwardChunkRows * kKeyBlock;
}

void Attend(const AttentionQueries& queries, const KeyRows& keys, float* scratch) {
  VariantsOfThisCpu().front()->attend_rows(queries, keys, scratch);
}

void AttendGroup(std::span<const AttentionMember<float>> members, int64_t num_shared,
                 float* scratch) {
  VariantsOfThisCpu().front()->attend_members(members, num_shared, scratch);
}

void AttendBackward(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch) {
  VariantsOfThisCpu().front()->backward_part(task, part, scratch);
}

LATHE_SIMD_CLONES
float AttentionDelta(const float* out, const float* dout, int64_t head_dim) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + kLanes <= head_dim; i += kLanes) sums += Load(out + i) * Load(dout + i);
  float sum = SumOfLanes(sums);
  for (; i < head_dim; ++i) sum += out[i] * dout[i];
  return sum;
}

}  // namespace lathe::worker
