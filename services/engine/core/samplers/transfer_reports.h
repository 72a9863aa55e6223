// Reports of workers about weight transfers and loads of versions. The samples that waited for them
// are queued.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnVersionServed(State& s, const WorkerVersionServed& event);
void OnVersionLoaded(State& s, const WorkerVersionLoaded& event);
// Handles a failed load. Does nothing unless the load was a served transfer.
void FailTransfer(State& s, Group& reader, const WorkerVersionFailed& event);

// Runs on each Tick. Ends pauses after failed transfers and queues the samples that waited.
void EndTransferPauses(State& s);
// Queues samples of versions that `home` serves, after it is available again.
void QueueSamplesFrom(State& s, const Group& home);

}  // namespace lathe::engine
