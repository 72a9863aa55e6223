// Advances each model's ledger and starts the operations that became ready.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Starts every operation of the model that is ready now.
void Advance(State& s, Model& model);

// Call when no more submissions can arrive. Missing seqs then no longer block later ones.
void CloseGaps(State& s, Model& model);
// Abandons the missing seqs up to `seq`. This is durable before anything above them runs.
void CloseGapsThrough(State& s, Model& model, int64_t seq);

// Closes gaps for which operations have waited longer than gap_timeout.
void CloseOverdueGaps(State& s);

}  // namespace lathe::engine
