// Placement of the samples that wait, after a worker was lost or became ready.
//
// A group may have hundreds of thousands of live samples, and each of them may need another group.
// A Step therefore looks at a bounded number of them, the oldest first. The others follow with the
// next Continue, behind the events that wait already. A group's queue never holds a sample that is
// still to be looked at, so that a sample is queued once.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Has all live samples of the group looked at again; "": those without a group. Requires that none
// of them is queued.
void PlaceAgain(State& s, const std::string& group);
// Call when the group became usable and its queues are empty. Has its samples looked at again, and
// those that no usable group has.
void PlaceForGroup(State& s, const Group& group);

// Runs when a Step ends. Looks at max_swept requests at most.
void PlaceSamples(State& s);

}  // namespace lathe::engine
