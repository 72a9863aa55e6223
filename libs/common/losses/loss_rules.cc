#include "libs/common/losses/loss_rules.h"

#include "libs/common/losses/registry.h"

namespace lathe {

LossRule RuleOf(const LossProgram& program) {
  LossRule rule{.name = std::string(program.name),
                .required_inputs = {"target_tokens"},
                .takes_2d_targets = program.inputs == LossInputs::kWeights,
                .needs_provenance = program.mask == LossMask::kSampled,
                .needs_ratio_mask = program.mask == LossMask::kSequenceRatio};
  if (program.inputs == LossInputs::kWeights) {
    rule.optional_inputs.push_back("weights");
  } else {
    rule.required_inputs.insert(rule.required_inputs.end(), {"logprobs", "advantages"});
  }
  if (rule.needs_ratio_mask) rule.required_inputs.push_back(kSequenceRatioMask);
  if (program.clip.has_value()) {
    rule.optional_inputs.insert(rule.optional_inputs.end(),
                                {kClipLowThreshold, kClipHighThreshold});
    rule.options = {{.key = kClipLowThreshold}, {.key = kClipHighThreshold}};
  }
  rule.optional_inputs.push_back(kReferenceLogprobs);
  rule.options.insert(rule.options.end(), program.options.begin(), program.options.end());
  rule.options.push_back({.key = kKlCoef});
  return rule;
}

const std::vector<LossRule>& LossRules() {
  static const auto* rules = [] {
    auto* made = new std::vector<LossRule>;
    for (const LossProgram* program : AllLosses()) made->push_back(RuleOf(*program));
    return made;
  }();
  return *rules;
}

}  // namespace lathe
