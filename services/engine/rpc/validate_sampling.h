// Validation of asample requests.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

// `prompt_tokens` must be at least 1. Errors name the field, its value and its bound:
// invalid_field, bad_tensor, bad_sparse, bad_token.
absl::Status CheckScores(const v1::SampleRequest& request, int64_t prompt_tokens,
                         const ModelLimits& limits);

// Returns the number of prompt tokens of a valid request. Errors name the field, its value and its
// bound. The error for a prompt that is too long has the wording of the Tinker API.
absl::StatusOr<int64_t> ValidateSample(const v1::SampleRequest& request, const ModelLimits& limits);

}  // namespace lathe::engine
