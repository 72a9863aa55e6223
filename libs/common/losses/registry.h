// The losses there are.
#pragma once

#include <span>
#include <string_view>

#include "libs/common/losses/loss.h"

namespace lathe {

// In the order in which messages list them.
std::span<const LossProgram* const> AllLosses();

// By its wire name; nullptr: there is none.
const LossProgram* FindLoss(std::string_view name);

// The defaults of a loss that there is.
LossSpec DefaultLoss(std::string_view name);

}  // namespace lathe
