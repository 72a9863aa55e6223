// Sampling sessions, the adapter versions behind them, and the submission of samples.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Requires that `submit.owner_id` is a sampler of the caller with an active session.
void SubmitSample(State& s, const Submit& submit);
void OnCancelSample(State& s, const CancelSample& event);

// Cancels samples of a session whose client has gone, the oldest first.
void CancelSamplesOf(State& s, Session& session, Budget& budget);

Sampler* FindSampler(State& s, const std::string& tenant_id, const std::string& sampler_id);
std::string SamplerId(const std::string& session_id, int64_t sampling_session_seq_id);
// Adds a sampler to the indexes, at creation or at a restart.
Sampler& TrackSampler(State& s, SamplerRow row);

// The samplers of the model's unnamed versions, in the order of ids.
std::set<std::string> UnnamedSamplersOf(const State& s, const std::string& model_id);

// Creates the sampler of an unnamed save that was published. May drop older versions.
void CommitPublishedVersion(State& s, const Model& model, const Request& save,
                            int64_t version_bytes);

// Makes samplers of an offloaded session idle. Workers drop the versions that only idle samplers
// use. Their files stay.
void MakeIdle(State& s, Session& session, Budget& budget);
// Makes the sampler busy before its use. It pins its files again, or is marked lost if they are
// gone.
void MakeBusy(State& s, Sampler& sampler);
// Makes samplers busy after a sign of life of their session.
void MakeBusy(State& s, Session& session, Budget& budget);

// Records that a version was lost with its worker and cannot be restored. Fails pending samples.
void LoseVersion(State& s, Sampler& sampler);
// Removes a sampler whose session has ended.
void ReleaseSampler(State& s, const std::string& sampler_id);

}  // namespace lathe::engine
