// What each kind of operation does when its turn comes, and the command it becomes.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// The turn of an operation of a model has come: sends it, queues it for a batch, or ends it.
void Begin(State& s, Model& model, Request& request);

// Sends what has begun to its group again, or for the first time once the group is usable.
void SendToGroup(State& s, Request& request);

// Whatever the worker may have now: batches of ready training requests, and samples, in fair-share
// order; or a suspect, once it has nothing else.
void SendNext(State& s, Group& group);

// Queues a sample for a group that can serve it; without one it waits for a group to attach.
void QueueSample(State& s, Request& request);

void OnBodyUnavailable(State& s, const BodyUnavailable& event);
// On each Tick: sends what could not be sent before.
void SendUnsent(State& s);

}  // namespace lathe::engine
