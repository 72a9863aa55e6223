// Scores a prompt: log-probabilities of its own tokens, of the top-k tokens and of tokens that the
// request names, and tokens sampled in their place.
#pragma once

#include <cstdint>

#include "services/worker/models/model.h"
#include "services/worker/ops/sampling.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Sizes the vectors that `request` asks for and fills them with the "unknown" value.
void PreparePromptScores(const SampleRequest& request, SampleOutput& output);

// Returns the first row that `request` wants scored; row i predicts position i + 1. Returns the
// prompt's length - 1, which predicts no prompt position, if it wants none. Earlier rows need no
// computing if their keys and values are cached.
int64_t FirstScoredRow(const SampleRequest& request);

inline bool WantsPromptScores(const SampleRequest& request) {
  return FirstScoredRow(request) + 1 < static_cast<int64_t>(request.prompt.size());
}

// Writes the scores of prompt rows [first_row, first_row + n) to `output`, which
// PreparePromptScores has sized. h [n, H] are these rows after the final norm. Only wanted rows
// pass through the head, in chunks of at most `chunk_elements` logits. The chunk size does not
// change a row's scores. Scores use temperature 1; sampled tokens and their log-probabilities use
// the request's.
void ScorePrompt(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                 const SampleRequest& request, int64_t first_row, int64_t chunk_elements,
                 SampleOutput& output);

}  // namespace lathe::worker
