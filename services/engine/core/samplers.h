// Sampling sessions, the adapter versions behind them, and the submission of samples.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Idempotent on (session, sampling_session_seq_id).
void OnCreateSamplingSession(State& s, const CreateSamplingSession& event);

// Answers with a number that no other call for this sampler gets, across restarts.
void OnJoinSamplingSession(State& s, const JoinSamplingSession& event);

// Requires that `submit.owner_id` is a sampler of the caller with an active session.
void SubmitSample(State& s, const Submit& submit);
void OnCancelSample(State& s, const CancelSample& event);

// Cancels the samples of a session whose client has gone.
void CancelSamplesOf(State& s, const std::string& session_id);

Sampler* FindSampler(State& s, const std::string& tenant_id, const std::string& sampler_id);
std::string SamplerId(const std::string& session_id, int64_t sampling_session_seq_id);
// The one version that all inflight samplers of a model share. Each inflight save replaces it.
std::string InflightVersionId(const std::string& model_id);
bool IsInflightVersion(const std::string& version_id);
// Adds a sampler to the indexes, at creation or at a restart.
Sampler& TrackSampler(State& s, SamplerRow row);

// Creates the sampler of an unnamed save that was published. May drop older versions.
void CommitPublishedVersion(State& s, const Model& model, const Request& save,
                            int64_t version_bytes);

// Records that a version was lost with its worker and cannot be restored. Fails pending samples.
void LoseVersion(State& s, Sampler& sampler);
// Removes a sampler whose session has ended.
void ReleaseSampler(State& s, const std::string& sampler_id);

// The group of the sampler's model, which publishes its unnamed version; nullptr: none is attached
// yet.
Group* HomeOf(State& s, const Sampler& sampler);
// Returns the group to serve the sampler. This is the model's group if it samples, else the least
// loaded group that can load the weights. nullptr: no group that samples is known yet, or the
// model's group must first write the weights.
Group* GroupForSampler(State& s, const Sampler& sampler);
// Returns true if the group has the weights or can load them from disk.
bool CanBeSampled(const State& s, const Group& group, const Sampler& sampler);
// Has each group with running samples of the version get its newest publication. The samples switch
// to it once the group has it.
void MoveSamplesOf(State& s, const std::string& version_id);
// Queues the samples that waited for weights of these versions.
void QueueSamplesOf(State& s, const std::set<std::string>& version_ids);
// Has the group load a version from disk unless it has it.
void LoadVersionOnce(State& s, Group& group, const Sampler& sampler);
void OnVersionFailed(State& s, const WorkerVersionFailed& event);

}  // namespace lathe::engine
