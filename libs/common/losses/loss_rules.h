// What each loss takes: the engine refuses by it, and the worker's programs are tested against it.
#pragma once

#include <string>
#include <vector>

namespace lathe {

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

inline const std::vector<LossRule>& LossRules() {
  static const std::vector<LossRule> rules = [] {
    const std::vector<std::string> rl_inputs = {"target_tokens", "logprobs", "advantages"};
    const std::vector<std::string> clip = {kClipLowThreshold, kClipHighThreshold};
    std::vector<LossRule> losses = {
        {"cross_entropy", {"target_tokens"}, {"weights"}, {}, /*takes_2d_targets=*/true},
        {"importance_sampling", rl_inputs, {}, {}, false},
        {"ppo",
         rl_inputs,
         clip,
         {kClipLowThreshold, kClipHighThreshold, kDualClipThreshold},
         false},
        {"cispo", rl_inputs, clip, clip, false},
        {"dro", rl_inputs, {}, {"beta"}, false},
        {.name = "gspo",
         .required_inputs = {"target_tokens", "logprobs", "advantages", "sequence_ratio_mask"},
         .optional_inputs = clip,
         .config = clip,
         .needs_ratio_mask = true},
        {.name = "stable_reinforce",
         .required_inputs = rl_inputs,
         .optional_inputs = {},
         .config = {"kl_coeff"},
         .needs_provenance = true},
    };
    for (LossRule& loss : losses) {
      loss.config.push_back(kKlCoef);
      loss.optional_inputs.push_back(kReferenceLogprobs);
    }
    return losses;
  }();
  return rules;
}

}  // namespace lathe
