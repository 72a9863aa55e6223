// Gathers a text of every rank on every rank.
#pragma once

#include <string>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the ranks' texts in rank order. Makes two all-gathers. `device` is the device of the
// group's tensors.
std::vector<std::string> GatherTexts(const RankGroup& group, const CollectiveCall& call,
                                     const std::string& text, at::Device device);

}  // namespace lathe::worker
