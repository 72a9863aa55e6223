// Models go from one group to another: because theirs is lost, because it is drained, or because
// somebody says so.
//
// A model is moved while no worker has its state, so moving is a recovery under another group's
// name: one transaction changes the group in its row, and whoever leads after a crash finds it on
// one side or the other. One that lives is first brought to that: nothing of it begins any more,
// what runs ends, and what only its worker has is written, as for parking.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnMoveModel(State& s, const MoveModel& event);
void OnDrainGroup(State& s, const DrainGroup& event);

// On each Tick. One whose recoveries end workers stays: only somebody who says so moves it.
void MoveModels(State& s);
// The same: what drained groups still have.
void TellGroupDrains(State& s);

// Why the model is between two groups, or must not leave one that does not work; for people.
// Empty: neither.
std::string WhyItWaits(State& s, const Model& model);

}  // namespace lathe::engine
