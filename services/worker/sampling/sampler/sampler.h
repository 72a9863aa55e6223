// Chooses the next token of each row from its logits, which one rank has or several ranks share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/ops/sampling.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct VocabularyShard;

// Input of one row besides its logits. The token is a function of these and the logits only, not of
// other rows or earlier draws.
struct SampleInput {
  const SamplingParams* params = nullptr;
  int64_t sample_index = 0;  // within the request
  int64_t position = 0;      // position of the drawn token in its sequence
  // Receives a row of the `k` most likely tokens, under the distribution of the logprob. Null: not
  // requested. The draws of one call need distinct ones.
  TopkLogprobs* top = nullptr;
};

struct TokenSamples {
  std::vector<int32_t> tokens;
  // Natural log of softmax(logits / temperature), before any filter. Temperature 0 uses
  // softmax(logits). NaN if the row's logits are not finite.
  std::vector<float> logprobs;
};

// Draws one token per row of logits [n, V] fp32. Temperature 0 takes the largest logit. Otherwise
// samples by Gumbel-max among the tokens that top-k, then top-p, then min-p keep. Runs on the
// logits' device.
TokenSamples SampleTokens(const at::Tensor& logits, std::span<const SampleInput> inputs);

// Draws from whole rows, of which `logits` [n, own] are this rank's columns. All ranks call it with
// the same draws and get the same result, to the bit: each merges the same numbers in the same
// order. A single rank with all columns rounds sums differently.
//
// On a CPU each rank samples by Gumbel-max among its own tokens, and only the winners are
// exchanged. Draws with a filter need the whole distribution, so their rows are gathered. On a GPU
// all rows are gathered, which takes less time than one layer.
// Collectives on tp, in order: all-gather of rows, of parts, of top-k tokens. A collective that no
// draw needs is skipped.
TokenSamples SampleTokens(const at::Tensor& logits, std::span<const SampleInput> inputs,
                          const VocabularyShard& vocabulary);

}  // namespace lathe::worker
