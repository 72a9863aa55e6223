#include "services/engine/core/samplers/samplers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/requests/tenant_usage.h"
#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"
#include "services/engine/core/state/base_models.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

std::optional<ErrorInfo> WhyNotSampled(const Sampler& sampler) {
  if (sampler.row.version_dropped) {
    return FailedPrecondition(
        "version_dropped",
        absl::StrFormat("the weights of %s were dropped: unnamed versions of this tenant exceed "
                        "sampler_versions_bytes; save a new one, or save under a name",
                        sampler.row.sampling_session_id));
  }
  if (sampler.lost && !sampler.unnamed()) {
    return FailedPrecondition(
        "checkpoint_deleted",
        absl::StrFormat("%s was deleted while the session of %s was silent", sampler.row.model_path,
                        sampler.row.sampling_session_id));
  }
  if (sampler.lost) {
    return DataLoss("version_lost",
                    absl::StrFormat("the weights of %s were lost when their worker stopped; save "
                                    "again, or save under a name",
                                    sampler.row.sampling_session_id));
  }
  return std::nullopt;
}

// The longest sequence that fits the KV cache of every connected worker of the base model.
int64_t SampleableTokens(const State& s, const std::string& base_model) {
  int64_t tokens = std::numeric_limits<int64_t>::max();
  for (const auto& [name, group] : s.groups) {
    if (group.row.base_model == base_model && group.usable() && group.can_sample() &&
        group.kv_cache_tokens > 0) {
      tokens = std::min(tokens, group.kv_cache_tokens);
    }
  }
  return tokens;
}

// Fixes what the user left open. Checks the length here, where an unset max_tokens is resolved.
std::optional<ErrorInfo> PlanSample(State& s, const Sampler& sampler, const SampleArgs& args,
                                    Plan& plan) {
  if (auto error = UnknownBaseModel(s, sampler.row.base_model)) return error;
  const BaseModelRow* const base = Find(s.base_models, sampler.row.base_model);
  const int64_t context = base == nullptr ? 0 : base->max_context_length;
  const int64_t limit = std::min(context, SampleableTokens(s, sampler.row.base_model));
  plan.seed = args.has_seed ? args.seed : s.random();
  plan.max_tokens =
      args.max_tokens > 0 ? args.max_tokens : std::max<int64_t>(1, limit - args.prompt_tokens);
  if (args.prompt_tokens + plan.max_tokens <= limit) return std::nullopt;
  return InvalidArgument(
      "too_long", "prompt",
      absl::StrFormat("Prompt length plus max_tokens exceeds %s: %d prompt tokens + %d max_tokens "
                      "> %d.",
                      limit < context ? "the kv cache of a worker" : "the model's context window",
                      args.prompt_tokens, plan.max_tokens, limit));
}

void CountBusy(State& s, const Sampler& sampler, int64_t sign) {
  const std::string& version_id = sampler.row.version_id;
  if (version_id.empty()) return;
  const auto it = s.num_busy.emplace(version_id, 0).first;
  it->second += sign;
  if (it->second == 0) s.num_busy.erase(it);
}

// Has the workers drop a version. Its files stay.
void DropFromGroups(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) {
    const bool is_coming = group.transfers.erase(version_id) > 0;
    if (group.version_ids.erase(version_id) == 0 && !is_coming) continue;
    s.fx.Send(name, group.row.epoch, SendDropVersion{version_id});
    if (Version* const version = Find(s.versions, version_id)) {
      StopReading(s, *version, name, /*all=*/true);
    }
  }
}

// Fails a live sample. The worker that has it frees its memory.
void CancelRequest(State& s, Request& request, std::string message) {
  const Group* const group = Find(s.groups, request.group);
  if (group != nullptr && request.row.state == RequestState::kDispatched) {
    s.fx.Send(request.group, group->row.epoch, SendCancel{request.row.request_id});
  }
  Fail(s, request, Cancelled(std::move(message)));
}

}  // namespace

void SubmitSample(State& s, const Submit& submit) {
  Sampler& sampler = s.samplers.at(submit.owner_id);
  MakeBusy(s, sampler);
  const auto& args = std::get<SampleArgs>(submit.args);
  Plan plan;
  plan.args = args;
  if (auto error = PlanSample(s, sampler, args, plan)) {
    return AnswerError(s, submit.call, *error);
  }
  const Group* const group = GroupForSampler(s, sampler);
  Request& request = Accept(s, submit, submit.seq_id, sampler.row.session_id,
                            group == nullptr ? "" : group->row.group, std::move(plan));
  if (const auto reason = WhyNotSampled(sampler)) return Fail(s, request, *reason);
  QueueSample(s, request);
}

void OnCancelSample(State& s, const CancelSample& event) {
  Request* const request = Find(s.requests, event.request_id);
  const bool is_running_sample = request != nullptr && request->live() &&
                                 request->row.tenant_id == event.tenant_id &&
                                 request->row.op_class == OpClass::kSample;
  if (is_running_sample) CancelRequest(s, *request, "the sample was cancelled: its caller left");
  if (event.call == 0) return;
  Answer answer;
  answer.call = event.call;
  s.fx.After(std::move(answer));
}

void CancelSamplesOf(State& s, Session& session, Budget& budget) {
  while (!session.samples.empty() && budget.Take()) {
    CancelRequest(s, s.requests.at(session.samples.begin()->second),
                  "the sample was cancelled: its session was silent");
  }
}

void MakeIdle(State& s, Session& session, Budget& budget) {
  while (!session.busy_sampler_ids.empty() && budget.Take()) {
    auto id = session.busy_sampler_ids.extract(session.busy_sampler_ids.begin());
    Sampler& sampler = s.samplers.at(id.value());
    const bool pinned = sampler.pins();
    CountBusy(s, sampler, -1);
    sampler.is_idle = true;
    session.idle_sampler_ids.insert(std::move(id));
    const std::string& version_id = sampler.row.version_id;
    if (!version_id.empty() && s.num_busy.count(version_id) == 0) DropFromGroups(s, version_id);
    if (pinned) UnpinDir(s, sampler.row.checkpoint_dir);
  }
}

void MakeBusy(State& s, Sampler& sampler) {
  if (!sampler.is_idle) return;
  sampler.is_idle = false;
  CountBusy(s, sampler, +1);
  Session& session = s.sessions.at(sampler.row.session_id);
  const std::string& id = sampler.row.sampling_session_id;
  session.busy_sampler_ids.insert(session.idle_sampler_ids.extract(id));
  const std::string& dir = sampler.row.checkpoint_dir;
  if (dir.empty()) return;
  sampler.lost = !AreFilesNeeded(s, dir);
  if (sampler.pins()) PinDir(s, dir);
}

void MakeBusy(State& s, Session& session, Budget& budget) {
  while (!session.idle_sampler_ids.empty() && budget.Take()) {
    MakeBusy(s, s.samplers.at(*session.idle_sampler_ids.begin()));
  }
}

Sampler* FindSampler(State& s, const std::string& tenant_id, const std::string& sampler_id) {
  Sampler* const sampler = Find(s.samplers, sampler_id);
  return sampler != nullptr && sampler->row.tenant_id == tenant_id ? sampler : nullptr;
}

std::string SamplerId(const std::string& session_id, int64_t sampling_session_seq_id) {
  return absl::StrFormat("%s:sample:%d", session_id, sampling_session_seq_id);
}

Sampler& TrackSampler(State& s, SamplerRow row) {
  if (!row.checkpoint_dir.empty()) PinDir(s, row.checkpoint_dir);
  if (Session* const session = Find(s.sessions, row.session_id)) {
    session->busy_sampler_ids.insert(row.sampling_session_id);
    session->sampler_seqs.insert(row.sampling_session_seq_id);
  }
  Sampler sampler;
  sampler.row = std::move(row);
  sampler.order = ++s.last_order;
  sampler.last_sampled_at = sampler.row.created_at;
  CountBusy(s, sampler, +1);
  CountVersion(s, sampler, +1);
  const std::string id = sampler.row.sampling_session_id;
  ChangeUsage(s, sampler.row.tenant_id, &TenantUsage::samplers, +1);
  if (sampler.unnamed()) s.unnamed_samplers[sampler.row.model_id].insert(id);
  return s.samplers.Add(id, std::move(sampler));
}

std::set<std::string> UnnamedSamplersOf(const State& s, const std::string& model_id) {
  const std::set<std::string>* const ids = Find(s.unnamed_samplers, model_id);
  return ids == nullptr ? std::set<std::string>() : *ids;
}

void CommitPublishedVersion(State& s, const Model& model, const Request& save,
                            int64_t version_bytes) {
  SamplerRow row;
  row.sampling_session_id = save.plan->sampling_session_id;
  row.session_id = model.row.session_id;
  row.tenant_id = model.row.tenant_id;
  row.sampling_session_seq_id = std::get<SaveArgs>(save.plan->args).sampling_session_seq_id;
  row.base_model = model.row.base_model;
  row.model_id = model.row.model_id;
  row.version_id = save.plan->version_id;
  row.version_bytes = version_bytes;
  row.created_at = s.now;
  Group* const home = Find(s.groups, model.row.group);
  if (home != nullptr) home->version_ids.insert(row.version_id);
  RecordPublication(s, row.version_id, model, save.row.seq_id,
                    std::get<SaveArgs>(save.plan->args).inflight);
  s.fx.Put(PutSampler{row});
  const std::string version_id = row.version_id;
  TrackSampler(s, std::move(row));
  if (home != nullptr && NeedsFiles(s, *home)) SaveVersionsOf(s, model);
  if (IsInflightVersion(version_id)) {
    MoveSamplesOf(s, version_id);
    QueueSamplesOf(s, {version_id});  // those that waited for the publication before
  }
  EnforceVersionBudget(s, model.row.tenant_id);
}

void LoseVersion(State& s, Sampler& sampler) {
  const Version* const version = Find(s.versions, sampler.row.version_id);
  const bool on_disk = version != nullptr && version->on_disk();
  if (!sampler.unnamed() || sampler.lost || sampler.row.version_dropped || on_disk) return;
  ForgetVersion(s, sampler.row.version_id);
  CountVersion(s, sampler, -1);
  sampler.lost = true;
  const std::map<int64_t, std::string> samples = sampler.pending;
  for (const auto& [order, id] : samples) Fail(s, s.requests.at(id), *WhyNotSampled(sampler));
}

void ReleaseSampler(State& s, const std::string& sampler_id) {
  const Sampler sampler = s.samplers.Take(sampler_id);
  const SamplerRow& row = sampler.row;
  const bool kept = sampler.unnamed() && !sampler.lost;
  if (!sampler.is_idle) CountBusy(s, sampler, -1);
  CountVersion(s, sampler, -1);
  if (sampler.unnamed()) {
    const auto of_model = s.unnamed_samplers.find(row.model_id);
    of_model->second.erase(sampler_id);
    if (of_model->second.empty()) s.unnamed_samplers.erase(of_model);
  }
  ChangeUsage(s, row.tenant_id, &TenantUsage::samplers, -1);
  s.fx.Put(DeleteSampler{sampler_id});
  if (!row.checkpoint_dir.empty()) {
    DropVersionIfUnused(s, row.version_id);
    if (sampler.pins()) UnpinDir(s, row.checkpoint_dir);
  } else if (kept && !row.version_dropped) {
    DropVersionIfUnused(s, row.version_id);
  }
}

}  // namespace lathe::engine
