// What requests of each loss have to bring and may bring, as its program says: the engine refuses
// by it before a request queues.
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
  // Whether targets and weights may be (N, K) or sparse.
  bool takes_2d_targets = false;
  // Datums must say which of their tokens were sampled, by spans or by a sequence_ratio_mask.
  bool needs_provenance = false;
  bool needs_ratio_mask = false;
};

LossRule RuleOf(const LossProgram& program);

// Of AllLosses(), in its order.
const std::vector<LossRule>& LossRules();

}  // namespace lathe
