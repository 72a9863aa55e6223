// Weight transfers: unnamed sampler versions go from the memory of the group that trains their
// model to groups that sample. The source group serves a version, the other group reads it, and
// samples wait until it is loaded. After a failure, versions go through files for a while.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Maximum number of transfers from one group at a time, as its worker keeps a copy of each version
// that it serves. Other versions go through files meanwhile.
inline constexpr int64_t kMaxTransfers = 4;
int64_t NumTransfersFrom(const State& s, const std::string& group);

// The group of the version's model; nullptr: none is known.
const Group* HomeOf(const State& s, const Version& version);
// Returns true if `reader` can read the version from the memory of its model's group.
bool CanTransfer(const State& s, const Group& reader, const Version& version);
// Returns true if versions of models on `home` must be written because some groups cannot get them
// from its memory.
bool NeedsFiles(const State& s, const Group& home);

// Returns true if a transfer of the sampler's version to `reader` is under way, starts now, or
// waits for its turn.
bool AwaitTransfer(State& s, Group& reader, const Sampler& sampler);

// Drops transfers when the group's process is gone or may have missed commands. They start again
// when samples are queued.
void AbandonTransfers(State& s, Group& group);

}  // namespace lathe::engine
