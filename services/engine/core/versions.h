// Adapter versions in the memory of workers: their bound and their end.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Drops the tenant's least recently sampled unnamed versions above sampler_versions_bytes.
void EnforceVersionBudget(State& s, const std::string& tenant_id);

// The model's weights are an unnamed version since the operation at `seq_id`.
void NotePublication(State& s, const std::string& version_id, const Model& model, int64_t seq_id,
                     bool is_inflight);

// The group was told to read it from where it is on disk.
void NoteReader(Version& version, const Group& group);
// What the group reads of the version is what is on disk now; `all`: it does not even read that.
// Files of earlier publications go with their last reader.
void StopReading(State& s, Version& version, const std::string& group, bool all);
// The process is gone.
void StopReadingAll(State& s, const std::string& group);
void OnVersionLoaded(State& s, const WorkerVersionLoaded& event);

// Nothing keeps it any more: the disk forgets it.
void ForgetVersion(State& s, const std::string& version_id);
// A worker lacks an unnamed version that it should have: it is on disk, or a recovery of its model
// makes it again, or it is lost.
void RegainVersion(State& s, Sampler& sampler);

// Every group that has it forgets it; so does the disk.
void DropVersion(State& s, const std::string& version_id);
// The same unless a sampler still uses it.
void DropVersionIfUnused(State& s, const std::string& version_id);

}  // namespace lathe::engine
