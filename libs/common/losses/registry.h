// Registry of all losses, and the inputs that requests of each must and may have. The engine uses
// these rules to refuse a request before it queues.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libs/common/losses/loss.h"

namespace lathe {

// Returns all losses, in the order in which messages list them.
std::span<const LossProgram* const> AllLosses();

// Returns the loss with this wire name; null: there is none.
const LossProgram* FindLoss(std::string_view name);

// Returns the defaults of a loss, which must exist.
LossSpec DefaultLoss(std::string_view name);

struct LossRule {
  std::string name;
  std::vector<std::string> required_inputs;
  std::vector<std::string> optional_inputs;
  std::vector<LossOption> options;  // numbers of loss_fn_config
  // True if targets and weights may be (N, K) or sparse.
  bool takes_2d_targets = false;
  // Datums must mark their sampled tokens, with spans or with a sequence_ratio_mask.
  bool needs_provenance = false;
  bool needs_ratio_mask = false;
};

LossRule RuleOf(const LossProgram& program);

// Returns the rules of AllLosses(), in the same order.
const std::vector<LossRule>& LossRules();

}  // namespace lathe
