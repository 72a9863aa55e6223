// Validation of asample's requests for scores: logprobs, top-k tokens, targets, sampled prompt
// tokens.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/model_limits.h"

namespace lathe::engine {

// `prompt_tokens` must be at least 1. Errors name the field, its value and its bound:
// invalid_field, bad_tensor, bad_sparse, bad_token.
absl::Status CheckScores(const v1::SampleRequest& request, int64_t prompt_tokens,
                         const ModelLimits& limits);

}  // namespace lathe::engine
