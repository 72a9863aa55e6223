// Registry of all losses.
#pragma once

#include <span>
#include <string_view>

#include "libs/common/losses/loss.h"

namespace lathe {

// Returns all losses, in the order in which messages list them.
std::span<const LossProgram* const> AllLosses();

// Returns the loss with this wire name; null: there is none.
const LossProgram* FindLoss(std::string_view name);

// Returns the defaults of a loss, which must exist.
LossSpec DefaultLoss(std::string_view name);

}  // namespace lathe
