// The inputs that requests of each loss must and may have, derived from its program. The engine
// uses them to refuse a request before it queues.
#pragma once

#include <string>
#include <vector>

#include "libs/common/losses/loss.h"

namespace lathe {

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
