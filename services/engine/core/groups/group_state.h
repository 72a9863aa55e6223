// Availability of a group, and the text that people get when it is not available.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Notifies waiting callers.
void NotifyState(State& s, const Group& group);

// Returns true if a process that ended with `cause` is known to have died without being asked to.
bool IsDeath(LossCause cause);
// Returns true if a process that ended with `cause` crashed or ran out of memory.
bool IsByItself(LossCause cause);

// Records the death of the group's worker process. `how`: "signal 11". Too many deaths without
// completed work between make the group degraded. `was_loaded`: the base model was loaded.
void RecordDeath(State& s, Group& group, LossCause cause, const std::string& how, bool was_loaded);
// Counts one death: the ranks lost contact, and no exit status is known.
void RecordLostPeer(State& s, Group& group, const std::string& how, bool was_loaded);
// Adds the cause of a death that RecordLostPeer counted.
void ExplainDeath(State& s, Group& group, LossCause cause, const std::string& how, bool was_loaded);
// Forgets the deaths of a group that was removed.
void Forgive(State& s, Group& group);
// The group's worker has completed a request.
void RecordWorkDone(State& s, Group& group);
// Runs on each Tick. Forgets the deaths of groups whose worker has lived for worker_healthy_after.
void HealGroups(State& s);

// Returns true if the worker's files differ from those with which models of this base model were
// trained. The worker is then not used, and no state is lost. This holds until a worker comes with
// the right files or no model needs them.
bool Refuse(State& s, Group& group, const ReadyModel& model);

}  // namespace lathe::engine
