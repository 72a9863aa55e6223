// Validation of asample requests.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/model_limits.h"

namespace lathe::engine {

// Returns the number of prompt tokens of a valid request. Errors name the field, its value and its
// bound. The error for a prompt that is too long has the wording of tinker-api 10.2.
absl::StatusOr<int64_t> ValidateSample(const v1::SampleRequest& request, const ModelLimits& limits);

}  // namespace lathe::engine
