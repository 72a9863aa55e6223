// Gradients of causal attention on a CPU, free of torch. Weights are computed again from the
// scores and the log-sums of the forward pass (arXiv:2307.08691, section 3.1.2).
//
// dk and dv are chains over the query rows in order of position, then head; dq is one over the keys
// in order. Keys and queries can be computed apart, on any number of threads, with the same bits.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cpu/attention_kernel.h"

namespace lathe::worker {

// One sequence, one kv head and the query heads that share it. Row 0 is the sequence's first, head
// 0 the first of those heads.
struct AttentionBackwardTask {
  HeadRows q;
  HeadRows k;
  HeadRows v;
  HeadRows dout;
  HeadRows log_sums;  // what Attend wrote
  HeadRows deltas;    // what AttentionDelta gives for each query
  HeadRows dq;
  HeadRows dk;
  HeadRows dv;
  int64_t num_positions;
  int64_t group;
  int64_t head_dim;
  float scale;
};

// What one call writes.
struct AttentionBackwardPart {
  enum class Gradients { kAll, kKeys, kQueries };
  Gradients gradients;  // kKeys: dk and dv; kQueries: dq
  int64_t begin;        // positions of keys (a multiple of kAttentionKeyBlock) or of queries;
  int64_t end;          // the whole sequence for kAll
};

// Sum of out * dout over one head of one query.
float AttentionDelta(const float* out, const float* dout, int64_t head_dim);

// Floats of scratch memory for a sequence of `num_rows` queries: positions times heads.
int64_t AttentionBackwardScratchSize(int64_t num_rows, int64_t head_dim);

void AttendBackward(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch);

// The same with products of two bf16 numbers each and fp32 sums, for what AttendBf16 gave: rounded
// are q, k, v, dout, and weights and gradients of scores where they are factors.
void AttendBackwardBf16(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                        float* scratch);

}  // namespace lathe::worker
