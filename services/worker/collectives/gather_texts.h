// Text of every rank on every rank.
#pragma once

#include <string>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/collectives/rank_group.h"

namespace lathe::worker {

// Every rank's `text`, in their order, in two exchanges. `device` is where the group's tensors are.
std::vector<std::string> GatherTexts(const RankGroup& group, const CollectiveCall& call,
                                     const std::string& text, at::Device device);

}  // namespace lathe::worker
