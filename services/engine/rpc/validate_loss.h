// Whether a request names a loss and gives it what it takes (tinker-api 16.1).
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/losses/loss_rules.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// Errors: bad_loss for an unknown loss (names the allowed ones), bad_loss_config for a config key
// that it does not take or a value out of range.
absl::StatusOr<const LossRule*> CheckLoss(const v1::LossSpec& loss);

// Number `name` of the configuration, if it is given.
std::optional<double> ConfigValue(const v1::LossSpec& loss, const std::string& name);

}  // namespace lathe::engine
