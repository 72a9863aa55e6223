// What a request wants to know of its prompt: log-probabilities of its own tokens, of the most
// likely ones, of tokens it names, and draws in their place.
#pragma once

#include <cstdint>

#include "services/worker/aten.h"
#include "services/worker/models/model.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// Sizes the vectors that `request` asks for and fills them with "nothing known".
void PreparePromptScores(const SampleRequest& request, SampleOutput& output);

// Row i of a prompt predicts position i + 1. The first row that `request` wants scored; the
// prompt's length - 1, which predicts no position of it, when it wants none. What comes before may
// be known without being computed.
int64_t FirstScoredRow(const SampleRequest& request);

inline bool WantsPromptScores(const SampleRequest& request) {
  return FirstScoredRow(request) + 1 < static_cast<int64_t>(request.prompt.size());
}

// Writes the scores that rows [first_row, first_row + n) of the prompt give into `output`, prepared
// before. h [n, H] are those rows after the final norm. Only rows that are wanted pass the head,
// and logits exist for `chunk_elements` numbers at a time; a row's scores do not depend on how rows
// are cut. Scores are of temperature 1, draws and their logprobs of the request's.
void ScorePrompt(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                 const SampleRequest& request, int64_t first_row, int64_t chunk_elements,
                 SampleOutput& output);

}  // namespace lathe::worker
