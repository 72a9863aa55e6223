// Hot file, free of torch: softmax statistics of rows of logits, and the gradient of
// log-probabilities. A row's bits do not depend on other rows.
#pragma once

#include <cstdint>

namespace lathe::worker {

struct SoftmaxStatsTask {
  const float* logits;  // rows of `width`, contiguous
  int64_t width;
  float* max;   // [rows]
  double* sum;  // [rows], sum of exp(logit - max)
};
void SoftmaxStatsRows(const SoftmaxStatsTask& task, int64_t begin, int64_t end);

// Replaces each row of logits by the sum over its chosen tokens of slope · (onehot - softmax). The
// columns may be a part of the vocabulary; max and sum then cover all of it.
struct SoftmaxGradientTask {
  float* logits;
  int64_t width;
  int64_t first_token;  // token of the first column
  const float* max;     // from SoftmaxStatsRows
  const double* sum;    // same
  // The tokens of row i are tokens[offsets[i]] … tokens[offsets[i + 1] - 1].
  const int64_t* offsets;
  const int64_t* tokens;
  const float* slopes;  // one per token
};
void SoftmaxGradientRows(const SoftmaxGradientTask& task, int64_t begin, int64_t end);

}  // namespace lathe::worker
