// forward, forward_backward and optim_step.
#pragma once

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/rpc/model_limits.h"

namespace lathe::engine {

// Everything about the datums and the loss; errors name the datum, the input and the position.
absl::Status ValidateForwardBackward(const v1::ForwardBackwardRequest& request,
                                     const ModelLimits& limits);

// Tokens of all datums; what the request is charged.
int64_t CountTokens(const v1::ForwardBackwardRequest& request);

// Error: bad_optimizer with the field and its range.
absl::Status ValidateAdam(const v1::AdamParams& adam);
// Other optimizers than AdamW are refused by name.
absl::Status ValidateOptimizerType(const std::string& type);

}  // namespace lathe::engine
