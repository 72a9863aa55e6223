// Sampling sessions, the adapter versions behind them, and the submission of samples.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Idempotent on (session, sampling_session_seq_id).
void OnCreateSamplingSession(State& s, const CreateSamplingSession& event);

// Answers a number that no other call for this sampler got, restarts included.
void OnJoinSamplingSession(State& s, const JoinSamplingSession& event);

// `submit.owner_id` is a sampler of the caller, its session active.
void SubmitSample(State& s, const Submit& submit);
void OnCancelSample(State& s, const CancelSample& event);

// Of a session that nobody will come back to.
void CancelSamplesOf(State& s, const std::string& session_id);

Sampler* FindSampler(State& s, const std::string& tenant_id, const std::string& sampler_id);
std::string SamplerId(const std::string& session_id, int64_t sampling_session_seq_id);
// The one version that all inflight samplers of a model share; each inflight save replaces it.
std::string InflightVersionId(const std::string& model_id);
bool IsInflightVersion(const std::string& version_id);
// Adds a sampler to the indexes; for creation and for a restart.
Sampler& TrackSampler(State& s, SamplerRow row);

// An unnamed save was published: its sampler exists from now on. May drop older versions.
void CommitPublishedVersion(State& s, const Model& model, const Request& save,
                            int64_t version_bytes);

// Nothing brings back a version that went with its worker: pending samples fail.
void LoseVersion(State& s, Sampler& sampler);
// Its session is over.
void ReleaseSampler(State& s, const std::string& sampler_id);

// Where its model lives, which publishes its unnamed version; nullptr: none has attached yet.
Group* HomeOf(State& s, const Sampler& sampler);
// The group that is to serve it: where its weights are, else any that can load them, by load;
// nullptr: none that samples has come yet, or the weights have first to be written by their home.
Group* GroupForSampler(State& s, const Sampler& sampler);
// The group has the weights, or can load them.
bool CanBeSampled(const State& s, const Group& group, const Sampler& sampler);
// Those that run on groups that have loaded an earlier publication go on with the newest, once it
// has come there.
void MoveSamplesOf(State& s, const std::string& version_id);
// Samples that waited for the version's weights.
void QueueSamplesOf(State& s, const std::set<std::string>& version_ids);
// Tells the group to load a version from disk unless it has it.
void LoadVersionOnce(State& s, Group& group, const Sampler& sampler);
void OnVersionFailed(State& s, const WorkerVersionFailed& event);

}  // namespace lathe::engine
