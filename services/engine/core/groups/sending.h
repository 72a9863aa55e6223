// Chooses what a group's worker gets next.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Sends the worker as much as its limits allow: batches of ready training requests and samples, in
// fair-share order. If there are quarantined requests, sends one once the worker has nothing else.
void SendNext(State& s, Group& group);

// Makes room for the samples that wait.
void OnSampleProgress(State& s, const WorkerSampleProgress& event);
void OnBodyUnavailable(State& s, const BodyUnavailable& event);
// Runs on each Tick. Sends the requests that could not be sent before.
void SendUnsent(State& s);

}  // namespace lathe::engine
