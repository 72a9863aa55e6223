#include "services/worker/training/losses/registry.h"

#include <cstdlib>

#include "services/worker/training/losses/cispo.h"
#include "services/worker/training/losses/cross_entropy.h"
#include "services/worker/training/losses/dro.h"
#include "services/worker/training/losses/gspo.h"
#include "services/worker/training/losses/importance_sampling.h"
#include "services/worker/training/losses/ppo.h"
#include "services/worker/training/losses/stable_reinforce.h"

namespace lathe::worker {
namespace {

constexpr const LossProgram* kPrograms[] = {
    &kCispo, &kCrossEntropy, &kDro, &kGspo, &kImportanceSampling, &kPpo, &kStableReinforce,
};

}  // namespace

std::span<const LossProgram* const> AllLosses() { return kPrograms; }

const LossProgram& FindLoss(LossKind kind) {
  for (const LossProgram* program : kPrograms) {
    if (program->defaults.kind == kind) return *program;
  }
  std::abort();  // an enumerator without a registry line
}

const LossProgram* FindLoss(std::string_view name) {
  for (const LossProgram* program : kPrograms) {
    if (program->name == name) return program;
  }
  return nullptr;
}

}  // namespace lathe::worker
