// The softmax of query rows over blocks of keys (arXiv:2205.14135). Hot file, free of torch.
#pragma once

#include "services/worker/kernels/cpu/attention/attention_vectors.h"

namespace lathe::worker::attention {

// State of some rows that is carried from block to block.
struct RunningRows {
  float* out;   // [rows, padded head_dim], before the division
  float* max;   // [rows]
  float* sums;  // [rows, kLanes]
  int64_t padded_dim;
};

// Keys [begin, end) of a block: those that a row sees. Empty if begin >= end.
struct SeenKeys {
  int64_t begin;
  int64_t end;
};

// Turns a row's scores into weights relative to its maximum so far. Rescales earlier results if the
// maximum grows. A row that has seen no key yet gets weights of zero and keeps its maximum.
LATHE_INLINE void UpdateRow(const RunningRows& rows, int64_t row, const SeenKeys& seen,
                            int64_t num_vectors, bool is_first, Lanes (&values)[kKeyVectors]) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (seen.begin >= seen.end) {
    for (int64_t v = 0; v < num_vectors; ++v) values[v] = Lanes{};
    return;
  }
  const int64_t limit = seen.end;
  Lanes most = Lanes{} - kInfinity;
  for (int64_t v = 0; v < num_vectors; ++v) {
    if (seen.begin > v * kLanes) {
      const Words is_old = kLaneIndex < static_cast<int32_t>(seen.begin - v * kLanes);
      values[v] = is_old ? Lanes{} - kInfinity : values[v];
    }
    if (limit < (v + 1) * kLanes) {
      const Words is_past = kLaneIndex < static_cast<int32_t>(limit - v * kLanes);
      values[v] = is_past ? values[v] : Lanes{} - kInfinity;
    }
    most = Max(most, values[v]);
  }
  const float before = is_first ? -kInfinity : rows.max[row];
  const float block_max = MaxOfLanes(most)[0];
  const float max = before > block_max ? before : block_max;
  rows.max[row] = max;
  Lanes sums = {};
  if (!is_first) {
    sums = Load(rows.sums + row * kLanes);
    if (max != before) {
      const Lanes factor = Exp2(Lanes{} + (before - max));
      sums = sums * factor;
      float* out = rows.out + row * rows.padded_dim;
      for (int64_t i = 0; i < rows.padded_dim; i += kLanes) {
        Store(out + i, Load(out + i) * factor);
      }
    }
  }
  for (int64_t v = 0; v < num_vectors; ++v) {
    values[v] = Exp2(values[v] - max);
    sums = sums + values[v];
  }
  Store(rows.sums + row * kLanes, sums);
}

LATHE_INLINE void FinishRow(const AttentionQueries& queries, const RunningRows& rows, int64_t row) {
  const int64_t position = row / queries.group;
  const int64_t head = row % queries.group;
  const float sum = SumOfLanes(Load(rows.sums + row * kLanes));
  const float factor = 1.0f / sum;
  const float* weighed = rows.out + row * rows.padded_dim;
  float* out = queries.out.at(position, head);
  // Adding zero makes all zeros positive; their sign could depend on other rows of the tile.
#pragma omp simd
  for (int64_t i = 0; i < queries.head_dim; ++i) out[i] = weighed[i] * factor + 0.0f;
  if (queries.log_sums.data != nullptr) {
    *queries.log_sums.at(position, head) = rows.max[row] + FastLog(sum) * kLog2E;
  }
}

}  // namespace lathe::worker::attention
