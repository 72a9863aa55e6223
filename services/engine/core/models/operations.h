// Order of a model's operations, the effect of each kind when it becomes ready, and its worker
// command.
#pragma once

#include <cstdint>
#include <map>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Starts every operation of the model that is ready now.
void Advance(State& s, Model& model);

// Call when no more submissions can arrive. Missing seqs then no longer block later ones.
void CloseGaps(State& s, Model& model);
// Abandons the missing seqs up to `seq`. This is durable before anything above them runs.
void CloseGapsThrough(State& s, Model& model, int64_t seq);

// Closes gaps for which operations have waited longer than gap_timeout.
void CloseOverdueGaps(State& s);

// Sends a started operation to its group, again or for the first time. Does nothing unless the
// group is usable.
void SendToGroup(State& s, Request& request);

// Sends the command of an operation that no batch contains.
void SendBarrier(State& s, Group& group, Request& request);
// Records that the request's command is sent.
void RecordDispatched(State& s, Group& group, Request& request);

// Adds the model's requests that have started, by order of acceptance.
void AddBegun(State& s, const Model& model, std::map<int64_t, Request*>& begun);
// Call when the model on the worker has the state of the ledger. Sends its started requests again.
void ResumeModel(State& s, Model& model);

}  // namespace lathe::engine
