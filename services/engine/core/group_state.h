// Whether a group can be used, and what people are told of it when it cannot.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Tells waiting callers.
void TellState(State& s, const Group& group);

// A process that ended so has not been told to.
bool IsDeath(LossCause cause);
// … nor was it ended by anybody else.
bool IsByItself(LossCause cause);

// Its worker's process has died; `how`: "signal 11". Too many of them without work done between
// make it degraded. `was_loaded`: its base model.
void NoteDeath(State& s, Group& group, LossCause cause, const std::string& how, bool was_loaded);
// As one death: its ranks have lost each other, and what became of any of them is not known.
void NoteLostPeer(State& s, Group& group, const std::string& how, bool was_loaded);
// One that was counted so was this.
void ExplainDeath(State& s, Group& group, LossCause cause, const std::string& how, bool was_loaded);
// Its worker has completed a request.
void NoteWorkDone(State& s, Group& group);
// On each Tick.
void HealGroups(State& s);

// The files its worker has are others than those its models were trained on: it is not used, and
// nothing is lost, until it comes with the right ones or nobody needs them. False: they are right.
bool Refuse(State& s, Group& group, const ReadyModel& model);

}  // namespace lathe::engine
