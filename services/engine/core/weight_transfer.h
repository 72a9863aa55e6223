// Weight transfers: unnamed sampler versions go from the memory of the group that trains their
// model to groups that sample. The source group serves a version, the other group reads it, and
// samples wait until it is loaded. After a failure, versions go through files for a while.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Returns true if `reader` can read the version from the memory of its model's group.
bool CanTransfer(const State& s, const Group& reader, const Version& version);
// Returns true if versions of models on `home` must be written because some groups cannot get them
// from its memory.
bool NeedsFiles(const State& s, const Group& home);

// Returns true if a transfer of the sampler's version to `reader` is under way, starts now, or
// waits for its turn.
bool AwaitTransfer(State& s, Group& reader, const Sampler& sampler);

void OnVersionServed(State& s, const WorkerVersionServed& event);
// Ends the transfer that this load completes. Returns true if the version came from memory.
bool EndTransfer(State& s, Group& reader, const WorkerVersionLoaded& event);
// Handles a failed load. Does nothing unless the load was a served transfer.
void FailTransfer(State& s, Group& reader, const WorkerVersionFailed& event);

// Cancels the transfers of a version that has newer weights or is dropped.
void CancelTransfers(State& s, const std::string& version_id);
// Drops transfers when the group's process is gone or may have missed commands. They start again
// when samples are queued.
void AbandonTransfers(State& s, Group& group);
// Call when the version is on disk. Groups whose transfer is not served yet read the file instead.
void CancelUnservedTransfers(State& s, const std::string& version_id);
// Runs on each Tick. Ends pauses after failed transfers and queues the samples that waited.
void EndTransferPauses(State& s);
// Queues samples of versions that `home` serves, after it is available again.
void QueueSamplesFrom(State& s, const Group& home);

}  // namespace lathe::engine
