// The losses there are.
#pragma once

#include <span>
#include <string_view>

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

std::span<const LossProgram* const> AllLosses();

const LossProgram& FindLoss(LossKind kind);

// By its wire name; nullptr: there is none.
const LossProgram* FindLoss(std::string_view name);

}  // namespace lathe::worker
