// The group that serves a sample, and the queues of samples that wait for it.
#pragma once

#include <set>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// The group of the sampler's model, which publishes its unnamed version; nullptr: none is attached
// yet.
Group* HomeOf(State& s, const Sampler& sampler);
// Returns the group to serve the sampler. This is the model's group if it samples, else the least
// loaded group that can load the weights. nullptr: no group that samples is known yet, or the
// model's group must first write the weights.
Group* GroupForSampler(State& s, const Sampler& sampler);
// Returns true if the group has the weights or can load them from disk.
bool CanBeSampled(const State& s, const Group& group, const Sampler& sampler);
// Has the group load a version from disk unless it has it.
void LoadVersionOnce(State& s, Group& group, const Sampler& sampler);

// Queues a sample for a group that can serve it. Without one, the sample waits for a group to
// attach.
void QueueSample(State& s, Request& request);
// Queues a sample whose group is chosen. It waits if the group cannot serve it now, or if
// PlaceSamples is still to come to it.
void QueueAtItsGroup(State& s, Request& request);
// Queues the samples that waited for weights of these versions.
void QueueSamplesOf(State& s, const std::set<std::string>& version_ids);
// Has each group with running samples of the version get its newest publication. The samples switch
// to it once the group has it.
void MoveSamplesOf(State& s, const std::string& version_id);

}  // namespace lathe::engine
