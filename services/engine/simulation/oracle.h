// Checks of a run's results. The expected results follow from the accepted requests and their
// outcomes.
#pragma once

#include <functional>
#include <string>

#include "services/engine/simulation/world.h"
#include "services/engine/testing/counting_adapter.h"

namespace lathe::engine::simulation {

// Replays the requests of every model in the order of their seqs. Compares each result, checkpoint
// and sampler version with the weights it must come from. At the end compares the model with
// `live`: the adapter on the workers; nullptr: none. Throws a Violation of I2 or I4.
void CheckModels(const World& world,
                 const std::function<const CountingAdapter*(const std::string& model_id)>& live);

// Checks that every accepted request has ended (I1).
void CheckEnded(const World& world);

// Checks that a request which crashes workers is failed before it has ended many (I7).
void CheckKills(const World& world);

// Call after every session has ended and a new leader has started. Checks that no unneeded body,
// row of a live object or directory is left (I6).
void CheckNothingLeaks(const World& world);

}  // namespace lathe::engine::simulation
