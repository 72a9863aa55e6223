// Validation of forward, forward_backward and optim_step.
#pragma once

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

// Validates all datums and the loss. Errors name the datum, the input and the position.
absl::Status ValidateForwardBackward(const v1::ForwardBackwardRequest& request,
                                     const ModelLimits& limits);

// Returns the number of tokens in all datums, which quotas and usage count.
int64_t CountTokens(const v1::ForwardBackwardRequest& request);

// Error: bad_optimizer with the field and its range.
absl::Status ValidateAdam(const v1::AdamParams& adam);
// Requires AdamW. The error names any other optimizer.
absl::Status ValidateOptimizerType(const std::string& type);

}  // namespace lathe::engine
