// What a run must have come to, worked out from what was accepted and how it ended.
#pragma once

#include <functional>
#include <string>

#include "services/engine/simulation/counting_adapter.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

// Follows every model through its requests in the order of their seqs and compares each result,
// checkpoint and sampler version with the weights that it must have come from; and `live` (the
// adapter that the workers hold of a model; nullptr: none) with the end of that. Throws a Violation
// of I2 or I4.
void CheckModels(const World& world,
                 const std::function<const CountingAdapter*(const std::string& model_id)>& live);

// Every request that was ever accepted has ended (I1).
void CheckEnded(const World& world);

// A request that ends its workers is failed before it has taken many along (I7).
void CheckKills(const World& world);

// After every session has ended and a new leader has started: no body, row of a live object or
// directory is left that nobody needs (I6).
void CheckNothingLeaks(const World& world);

}  // namespace lathe::engine::simulation
