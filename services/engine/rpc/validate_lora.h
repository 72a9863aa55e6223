// The adapter of a new model.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/engine/rpc/model_limits.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Any rank from 1 to the base model's bound, at least one target, a positive alpha (unset: 32).
// A seed that was left open stays 0. Error: bad_lora with the field, its value and its bound.
absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const ModelLimits& limits);

}  // namespace lathe::engine
