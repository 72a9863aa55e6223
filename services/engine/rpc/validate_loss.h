// Validation of a request's loss and its configuration (tinker-api 16.1).
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/losses/loss_rules.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// Returns the rule of the loss. Errors: bad_loss for an unknown loss (names the allowed ones),
// bad_loss_config for an unknown config key or a value out of range.
absl::StatusOr<const LossRule*> CheckLoss(const v1::LossSpec& loss);

// Returns the number `name` of the configuration, if given.
std::optional<double> ConfigValue(const v1::LossSpec& loss, const std::string& name);

}  // namespace lathe::engine
