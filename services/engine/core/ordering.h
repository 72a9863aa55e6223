// Moves each model's ledger forward and begins what became ready.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Begins every operation of the model that is ready now.
void Advance(State& s, Model& model);

// Nothing more will come: missing seqs hold nobody back.
void CloseGaps(State& s, Model& model);
// Missing seqs up to `seq` are abandoned; durable before anything above them runs.
void CloseGapsThrough(State& s, Model& model, int64_t seq);

// Closes gaps that operations have waited for longer than gap_timeout.
void CloseOverdueGaps(State& s);

}  // namespace lathe::engine
