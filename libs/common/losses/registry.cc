#include "libs/common/losses/registry.h"

#include <cstdlib>

#include "libs/common/losses/cispo.h"
#include "libs/common/losses/cross_entropy.h"
#include "libs/common/losses/dro.h"
#include "libs/common/losses/gspo.h"
#include "libs/common/losses/importance_sampling.h"
#include "libs/common/losses/ppo.h"
#include "libs/common/losses/stable_reinforce.h"

namespace lathe {

namespace {

constexpr const LossProgram* kPrograms[] = {
    &kCrossEntropy, &kImportanceSampling, &kPpo, &kCispo, &kDro, &kGspo, &kStableReinforce,
};

constexpr bool AreValid() {
  for (const LossProgram* program : kPrograms) {
    if (program->options.size() > kMaxLossNumbers) return false;
    // A loss with a mask checks it against the advantages, so it needs them as inputs.
    if (program->mask != LossMask::kNone && program->inputs != LossInputs::kPolicy) return false;
  }
  return true;
}
static_assert(AreValid());

}  // namespace

std::span<const LossProgram* const> AllLosses() { return kPrograms; }

const LossProgram* FindLoss(std::string_view name) {
  for (const LossProgram* program : kPrograms) {
    if (program->name == name) return program;
  }
  return nullptr;
}

LossSpec DefaultLoss(std::string_view name) {
  const LossProgram* const program = FindLoss(name);
  if (program == nullptr) std::abort();
  return DefaultsOf(*program);
}

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
