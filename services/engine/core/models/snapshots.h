// Scheduling of snapshots of models and writes of their unnamed sampler versions.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Has workers write what is due, one snapshot at a time in each group.
void ScheduleSnapshots(State& s);

void OnSnapshotDone(State& s, const WorkerSnapshotDone& event);
void OnVersionSaved(State& s, const WorkerVersionSaved& event);

// Stops waiting for the snapshot and the versions that the group's worker was writing. A worker
// that lives may still report the versions.
void AbandonWriting(State& s, Group& group, bool process_lost);
// Returns true if the newest snapshot differs from the model's current state.
bool HasChanged(const Model& model);

// Starts the last snapshots of a drain after all requests have ended. Returns true while one is
// being written.
bool IsWritingForDrain(State& s);

}  // namespace lathe::engine
