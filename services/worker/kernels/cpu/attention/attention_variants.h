// Attention in fp32 for each instruction set. The variants differ only in their vectors.
#pragma once

#include <cstdint>
#include <span>

#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"
#include "services/worker/kernels/cpu/attention/attention_kernel.h"

namespace lathe::worker::attention {

// Attend, AttendGroup and AttendBackward.
struct Variant {
  const char* name;
  void (*attend_rows)(const AttentionQueries& queries, const KeyRows& keys, float* scratch);
  void (*attend_members)(std::span<const AttentionMember<float>> members, int64_t num_shared,
                         float* scratch);
  void (*backward_part)(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                        float* scratch);
};

extern const Variant kAvx512;  // x86-64-v4
extern const Variant kAvx2;    // x86-64-v3
extern const Variant kPlain;   // SSE2

// AttendBf16 and AttendBackwardBf16 by plain operations. For tests on CPUs without AVX512-BF16, in
// worker_kernels_cpu_variants. It has no attend_members.
extern const Variant kPlainBf16;

// Returns the variants that this CPU can run, the fastest first.
std::span<const Variant* const> VariantsOfThisCpu();

}  // namespace lathe::worker::attention
