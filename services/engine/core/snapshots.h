// When models and their unnamed sampler versions are written to disk.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Tells workers to write what is due; one snapshot at a time in each group.
void ScheduleSnapshots(State& s);

void OnSnapshotDone(State& s, const WorkerSnapshotDone& event);
void OnVersionSaved(State& s, const WorkerVersionSaved& event);

// The snapshot that the group's worker was writing is not waited for any more; versions neither,
// but a worker that lives may still bring them.
void AbandonWriting(State& s, Group& group, bool process_lost);
// No snapshot holds what the model is now.
bool HasChanged(const Model& model);
// Has the worker write those of the model's versions that are in its memory only.
void SaveVersionsOf(State& s, const Model& model);

// The same before an unload, after which nothing could make them again; one that cannot be written
// is not waited for. True: OnVersionSaved comes back to the model.
bool AreVersionsBeingSaved(State& s, const Model& model);

// A drain has waited for all requests: now it waits for these. False: for none any more.
bool IsWritingForDrain(State& s);

}  // namespace lathe::engine
