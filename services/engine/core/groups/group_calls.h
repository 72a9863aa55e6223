// Calls of operators about groups: which model is where, and which group is in service.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnMoveModel(State& s, const MoveModel& event);
void OnDrainGroup(State& s, const DrainGroup& event);
void OnRemoveGroup(State& s, const RemoveGroup& event);

// Runs on each Tick. Publishes what drained groups still hold.
void NotifyGroupDrains(State& s);

}  // namespace lathe::engine
