// Samples tokens from rows of logits on a GPU: temperature, filters, the Gumbel-max sampling of
// sampling_kernel.h, and log-probabilities. Free of torch and of CUDA's headers.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cuda/stream.h"

namespace lathe::worker {

// SamplingParams of one row, in the device's format.
struct RowInput {
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  uint32_t position = 0;
  float inverse_temperature = 1;  // 1 when greedy
  int32_t is_greedy = 0;
  int64_t top_k = 0;    // 0: off
  double top_p = 1;     // 1: off
  float min_p = 0;      // 0: off
  int32_t num_top = 0;  // most likely tokens to report
};

// All pointers are device pointers.
struct SampleRowsTask {
  const float* logits;  // [num_rows, vocab_size], a row's numbers are contiguous
  int64_t row_stride;
  int64_t num_rows;
  int64_t vocab_size;      // below 2^24
  const RowInput* inputs;  // [num_rows]
  int32_t* tokens;         // [num_rows]
  float* logprobs;         // [num_rows]; NaN, and no top tokens, if the row is not finite
  int64_t most_top;        // largest num_top
  uint64_t* top_keys;      // [num_rows, most_top], scratch memory
  int32_t* top_tokens;     // [num_rows, most_top]; each row uses its first num_top
  float* top_logprobs;     // same
};

// Samples the tokens that SampleTokens samples on a CPU from the same logits, except for the
// rounding of weights. A row's result does not depend on other rows.
void SampleRowsOnDevice(const SampleRowsTask& task, DeviceStream stream);

}  // namespace lathe::worker
