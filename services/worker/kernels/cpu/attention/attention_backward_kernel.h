// Gradients of causal attention on a CPU, free of torch. Weights are recomputed from the scores and
// the log-sums of the forward pass (arXiv:2307.08691, section 3.1.2).
//
// dk and dv are chains over the query rows in order of position, then head. dq is a chain over the
// keys in order. Keys and queries can be computed separately, on any number of threads, with the
// same bits.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cpu/attention/attention_kernel.h"

namespace lathe::worker {

// One sequence, one KV head and the query heads that share it. Row 0 is the first of the sequence,
// head 0 the first of those heads.
struct AttentionBackwardTask {
  HeadRows q;
  HeadRows k;
  HeadRows v;
  HeadRows dout;
  HeadRows log_sums;  // written by Attend
  HeadRows deltas;    // AttentionDelta of each query
  HeadRows dq;
  HeadRows dk;
  HeadRows dv;
  int64_t num_positions;
  int64_t group;
  int64_t head_dim;
  float scale;
  int64_t window = 0;  // as in AttentionQueries
};

// The part that one call computes.
struct AttentionBackwardPart {
  enum class Gradients { kAll, kKeys, kQueries };
  Gradients gradients;  // kKeys: dk and dv; kQueries: dq
  int64_t begin;        // positions of keys (a multiple of kAttentionKeyBlock) or of queries;
  int64_t end;          // the whole sequence for kAll
};

// Returns the sum of out * dout over one head of one query.
float AttentionDelta(const float* out, const float* dout, int64_t head_dim);

// Returns the scratch size in floats for `num_rows` query rows: positions times heads.
int64_t AttentionBackwardScratchSize(int64_t num_rows, int64_t head_dim);

void AttendBackward(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                    float* scratch);

// AttendBackward for AttendBf16: bf16 products with fp32 sums. Rounded are q, k, v and dout, and
// weights and score gradients where they are factors.
void AttendBackwardBf16(const AttentionBackwardTask& task, const AttentionBackwardPart& part,
                        float* scratch);

}  // namespace lathe::worker
