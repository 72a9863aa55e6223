// Losses, their configuration and the inputs each takes (tinker-api 16.1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"

namespace lathe::engine {

// Of every loss, beyond the contract: a penalty for leaving a reference policy, and what the loss
// of a datum is divided by.
inline constexpr char kKlCoef[] = "kl_coef";                         // at least 0
inline constexpr char kNormalization[] = "normalization";            // none, tokens or datums
inline constexpr char kReferenceLogprobs[] = "reference_logprobs";   // input of kl_coef
inline constexpr char kDualClipThreshold[] = "dual_clip_threshold";  // ppo; above 1
inline constexpr char kClipLowThreshold[] = "clip_low_threshold";    // also inputs, by token
inline constexpr char kClipHighThreshold[] = "clip_high_threshold";

struct LossRule {
  std::string name;
  std::vector<std::string> required_inputs;
  std::vector<std::string> optional_inputs;
  std::vector<std::string> config;  // names of numbers
  // Whether targets and weights may be (N, K) or sparse.
  bool takes_2d_targets = false;
  // Datums must say which of their tokens were sampled, by spans or by a sequence_ratio_mask.
  bool needs_provenance = false;
  bool needs_ratio_mask = false;
};

// Errors: bad_loss for an unknown loss (names the allowed ones), bad_loss_config for a config key
// that it does not take or a value out of range.
absl::StatusOr<const LossRule*> CheckLoss(const v1::LossSpec& loss);

// Number `name` of the configuration, if it is given.
std::optional<double> ConfigValue(const v1::LossSpec& loss, const std::string& name);

}  // namespace lathe::engine
