// Unnamed sampler versions on their way from the memory of the group that trains their model to
// groups that sample: the one serves, the other reads, and samples wait until it has. Where that
// fails, they go as files for a while.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Whether `reader` can have the version from the memory of its home.
bool CanTravel(const State& s, const Group& reader, const Version& version);
// Whether the versions of a model that lives on `home` are to be written because groups sample
// them that do not get them from its memory.
bool NeedsFiles(const State& s, const Group& home);

// True: the sampler's version is on its way to `reader`, or is sent there now.
bool AwaitTravel(State& s, Group& reader, const Sampler& sampler);

void OnVersionServed(State& s, const WorkerVersionServed& event);
// The group has it: true if it came from memory.
bool EndTravel(State& s, Group& reader, const WorkerVersionLoaded& event);
// It could not read one from there, unless another way was tried.
void FailTravel(State& s, Group& reader, const WorkerVersionFailed& event);

// The version has newer weights, or is dropped.
void CancelTravels(State& s, const std::string& version_id);
// The group's process is gone, or may not have heard all that it was told: what it was to serve, or
// to read, is asked for again when samples are queued.
void AbandonTravels(State& s, Group& group);
// It is on disk: whoever waits for it to be served reads the file.
void CancelUnserved(State& s, const std::string& version_id);
// On each Tick. Where versions may travel again, samples that nobody could write a file for go on.
void EndPauses(State& s);
// Samples of versions that `home` serves, which is there again.
void QueueSamplesFrom(State& s, const Group& home);

}  // namespace lathe::engine
