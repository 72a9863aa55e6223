// The losses there are.
#pragma once

#include <string_view>

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

const LossProgram& FindLoss(LossKind kind);

// By its wire name; nullptr: there is none.
const LossProgram* FindLoss(std::string_view name);

}  // namespace lathe::worker
