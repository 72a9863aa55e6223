// Adapter versions in the memory of workers: memory bound, publication and removal.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// The one version that all inflight samplers of a model share. Each inflight save replaces it.
std::string InflightVersionId(const std::string& model_id);
bool IsInflightVersion(const std::string& version_id);

// Counts a sampler whose unnamed version is kept (sign +1) or is kept no longer (-1).
void CountVersion(State& s, const Sampler& sampler, int64_t sign);
// Records that a sample of the sampler was sent.
void RecordSampled(State& s, Sampler& sampler);

// Drops the tenant's least recently sampled unnamed versions above sampler_versions_bytes.
void EnforceVersionBudget(State& s, const std::string& tenant_id);

// Records that the operation at `seq_id` published the model's weights as an unnamed version.
void RecordPublication(State& s, const std::string& version_id, const Model& model, int64_t seq_id,
                       bool is_inflight);

// Call when the newest publication of the version, the one on disk or a write has changed.
void IndexSaved(State& s, const Version& version);

// Forgets a version and deletes its files.
void ForgetVersion(State& s, const std::string& version_id);

// Removes a version from all groups and from disk.
void DropVersion(State& s, const std::string& version_id);
// Calls DropVersion unless a sampler still uses the version.
void DropVersionIfUnused(State& s, const std::string& version_id);

// Has the worker write the model's versions that are in its memory only.
void SaveVersionsOf(State& s, const Model& model);

// Has the versions written before an unload, after which they could not be made again. A version
// whose write failed does not count. Returns true if writes are under way; OnVersionSaved then
// visits the model again.
bool AreVersionsBeingSaved(State& s, const Model& model);

// Records that the group reads the version from its current directory.
void RecordReader(Version& version, Group& group);
// Records that the group no longer reads earlier publications of the version, and with `all` not
// the current one either. Deletes the files of an earlier publication with their last reader.
void StopReading(State& s, Version& version, const std::string& group, bool all);
// Call when the group's process is gone, so that it reads no version any more.
void StopReadingAll(State& s, Group& group);
// Call when the version is on disk. Groups whose transfer is not served yet read the file instead.
void CancelUnservedTransfers(State& s, const std::string& version_id);

}  // namespace lathe::engine
