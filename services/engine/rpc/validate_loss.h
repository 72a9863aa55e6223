// Validation of a request's loss and its configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/losses/registry.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// Requires both span lists of a datum, each covering `num_tokens` tokens exactly. `advantages`
// [num_tokens] must be 0 where loss_fn_input_spans mark a prompt token. Errors name the datum by
// `prefix`, e.g. "data[3]", and the loss by `loss`. Error: bad_provenance.
absl::Status CheckProvenance(const v1::Datum& datum, const v1::Tensor& advantages,
                             int64_t num_tokens, const std::string& prefix,
                             const std::string& loss);

// Requires every value of a sequence_ratio_mask to be 0 or 1. One must be 1, unless all advantages
// are 0. Error: bad_loss_input.
absl::Status CheckRatioMask(const v1::Tensor& mask, const v1::Tensor& advantages,
                            const std::string& field);

// Returns the rule of the loss. Errors: bad_loss for an unknown loss (names the allowed ones),
// bad_loss_config for an unknown config key or a value out of range.
absl::StatusOr<const LossRule*> CheckLoss(const v1::LossSpec& loss);

// Returns the number `name` of the configuration, if given.
std::optional<double> ConfigValue(const v1::LossSpec& loss, const std::string& name);

}  // namespace lathe::engine
