// Log-probabilities of a prompt's own tokens.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "services/worker/models/model.h"

namespace lathe::worker {

// The row the clients read as "nothing known of this position".
inline constexpr int32_t kNoTopToken = 0;
inline constexpr float kNoTopLogprob = -99999.0f;

// Writes the scores of prompt positions [first_position + 1, first_position + n] into `output`,
// whose vectors are already sized. h [n, H] are the rows after the final norm that predict those
// positions; temperature 1. Logits exist for `chunk_elements` numbers at a time.
void ScorePrompt(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                 const SampleRequest& request, int64_t first_position, int64_t chunk_elements,
                 SampleOutput& output);

// Sizes the vectors that `request` asks for and fills them with "nothing known".
void PreparePromptScores(const SampleRequest& request, SampleOutput& output);

inline bool WantsPromptScores(const SampleRequest& request) {
  return request.prompt_logprobs || request.topk_prompt_logprobs > 0;
}

}  // namespace lathe::worker
