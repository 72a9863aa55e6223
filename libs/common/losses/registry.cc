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

}  // namespace lathe
