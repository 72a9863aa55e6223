// The effect of each kind of operation when it becomes ready, and its worker command.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Starts an operation that is ready: sends it, queues it for a batch, or ends it.
void Begin(State& s, Model& model, Request& request);

// Sends a started operation to its group, again or for the first time. Does nothing unless the
// group is usable.
void SendToGroup(State& s, Request& request);

// Sends the worker as much as its limits allow: batches of ready training requests and samples, in
// fair-share order. If there are quarantined requests, sends one once the worker has nothing else.
void SendNext(State& s, Group& group);

void OnBodyUnavailable(State& s, const BodyUnavailable& event);
// Runs on each Tick. Sends the requests that could not be sent before.
void SendUnsent(State& s);

}  // namespace lathe::engine
