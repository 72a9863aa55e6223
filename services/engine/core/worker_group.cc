#include "services/engine/core/worker_group.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/engine/core/base_models.h"
#include "services/engine/core/errors.h"
#include "services/engine/core/models.h"
#include "services/engine/core/operations.h"
#include "services/engine/core/recovery.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/samplers.h"
#include "services/engine/core/snapshots.h"
#include "services/engine/core/versions.h"
#include "services/engine/ledger/adoption.h"

namespace lathe::engine {
namespace {

void NotifyState(State& s, const Group& group, const std::string& reason) {
  s.fx.After(NotifyQueueState{group.row.group, /*paused=*/!group.usable(), reason});
}

bool Runs(const Group& group, const Request& request) { return request.group == group.row.group; }

std::vector<std::string> LiveRequestsOf(const State& s, const Group& group) {
  std::vector<std::string> ids;
  for (const auto& [order, id] : s.live) {
    if (Runs(group, s.requests.at(id))) ids.push_back(id);
  }
  return ids;
}

void ForgetOutstanding(Group& group) {
  group.train.Clear();
  group.large_train.Clear();
  group.samples.Clear();
  group.window.Clear();
  group.inflight_sequences_of_request.clear();
  group.inflight_sequences = 0;
}

// `is_new_process` false: the old one lives and lost what it was sent, as it was never told of its
// group; nothing crashed.
void TakeBack(State& s, Group& group, bool is_new_process) {
  for (const std::string& id : LiveRequestsOf(s, group)) {
    Request& request = s.requests.at(id);
    const Sampler* const sampler = Find(s.samplers, request.row.owner_id);
    if (sampler != nullptr && !sampler->unnamed()) s.samples_to_place.insert(id);
    if (request.row.state != RequestState::kDispatched) continue;
    request.row.state = RequestState::kAccepted;
    if (!is_new_process || ++request.num_crashes < s.options.max_request_crashes) continue;
    Fail(s, request,
         Internal(absl::StrFormat("the worker stopped %d times while this request ran",
                                  request.num_crashes)));
    if (request.row.op_class != OpClass::kModel) continue;
    Model* const model =
        Find(s.models, absl::StrFormat("%s:train:%d", request.row.owner_id, request.row.seq_id));
    if (model != nullptr) FailModel(s, *model, Internal("its worker stopped again and again"));
  }
}

// Any group of their base model can serve them.
void PlaceSamples(State& s) {
  std::set<std::string> ids;
  ids.swap(s.samples_to_place);
  for (const std::string& id : ids) {
    Request& request = s.requests.at(id);
    if (!request.live()) continue;
    MoveToGroup(s, request, "");
    QueueSample(s, request);
  }
}

// An unnamed version whose model is not rebuilt comes back from disk or not at all.
void LoseVersionsOfGoneModels(State& s, const Group& group) {
  for (auto& [id, sampler] : s.samplers) {
    if (!sampler.unnamed() || GroupForSampler(s, sampler) != &group) continue;
    if (s.models.at(sampler.row.model_id).recovery == nullptr) LoseVersion(s, sampler);
  }
}

// What only that process held is gone. A model that is being created can be created again.
void LoseProcess(State& s, Group& group, bool is_new_process = true) {
  if (is_new_process) CutRecoveries(s, group);
  AbandonWriting(s, group, /*process_lost=*/true);
  group.version_ids.clear();
  for (auto& [id, model] : s.models) {
    if (model.row.group == group.row.group && model.row.state == ModelState::kReady) {
      NeedRecovery(s, model);
    }
  }
  LoseVersionsOfGoneModels(s, group);
  TakeBack(s, group, is_new_process);
  ForgetOutstanding(group);
  group.row.process_id.clear();
  PlaceSamples(s);
}

bool IsBegun(const Model& model, const Request& request) {
  switch (request.row.op_class) {
    case OpClass::kModel:
      return true;
    case OpClass::kTrain:
      return model.order.IsIssued(request.row.seq_id);
    case OpClass::kUnload:  // else Advance sends it when its turn comes
      return request.row.state == RequestState::kDispatched;
    case OpClass::kSample:
      return false;
  }
  return false;
}

// Begun operations, in order of acceptance, and samples that this group may serve.
void SendUnfinished(State& s, Group& group) {
  ForgetOutstanding(group);
  if (!group.usable()) return;
  for (const auto& [order, id] : s.live) {
    Request& request = s.requests.at(id);
    if (request.row.op_class == OpClass::kSample) {
      if (Runs(group, request) || request.group.empty()) QueueSample(s, request);
      continue;
    }
    if (!Runs(group, request)) continue;
    const Model& model = s.models.at(request.plan->model_id);
    if (model.recovery == nullptr && IsBegun(model, request)) SendToGroup(s, request);
    s.dirty_models.insert(model.row.model_id);
  }
}

LedgerModel ViewOf(State& s, const Model& model) {
  LedgerModel view;
  view.applied_seq = model.gradient.applied_seq();
  view.gradient_from_seq = model.gradient.from_seq();
  view.window = model.gradient.seqs();
  for (const int64_t seq : model.order.Issued()) {
    const Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
    switch (request->row.kind) {
      case OperationKind::kForwardBackward:
        view.open_gradients.push_back(seq);
        break;
      case OperationKind::kOptimStep:
      case OperationKind::kLoadWeights:
        view.open_update = seq;
        break;
      default:
        break;
    }
  }
  return view;
}

bool UnloadMayBeDone(const Model& model) {
  return !model.unload_request_id.empty() && model.order.Unresolved().empty();
}

// What came after the clearing of a gradient is at the worker: so is the clearing, which it may not
// have done yet. Another one would queue up behind and drop the gradient that is next.
bool HasWorkAfterClear(State& s, const Model& model, const std::set<std::string>& running) {
  for (const int64_t seq : model.order.Issued()) {
    const Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
    if (seq > model.gradient.from_seq() && running.count(request->row.request_id) > 0) return true;
  }
  return false;
}

void AdoptModel(State& s, Group& group, Model& model, const HeldModel* held,
                const std::set<std::string>& running) {
  // What makes another one ready runs, or runs again.
  if (model.row.state != ModelState::kReady) return;
  // What it was told of it may not have come, or comes yet, whatever it says that it holds.
  const bool is_rebuilt = std::any_of(running.begin(), running.end(), [&](const std::string& id) {
    return ModelOfReplay(id) == model.row.model_id;
  });
  if (model.recovery || is_rebuilt) return NeedRecovery(s, model);
  if (held == nullptr) {
    if (!UnloadMayBeDone(model)) NeedRecovery(s, model);
    return;
  }
  switch (CompareForAdoption(ViewOf(s, model), {held->applied_seq, held->window})) {
    case Adoption::kMatches:
      return;
    case Adoption::kMatchesAfterClear:
      if (HasWorkAfterClear(s, model, running)) return;
      s.fx.Send(group.row.group, group.row.epoch, SendClearGradient{model.row.model_id});
      return;
    case Adoption::kLost:
      NeedRecovery(s, model);
      return;
  }
}

void AdoptModels(State& s, Group& group, const WorkerAttached& event) {
  std::map<std::string, const HeldModel*> held;
  for (const HeldModel& one : event.models) held[one.model_id] = &one;
  const std::set<std::string> running(event.running_request_ids.begin(),
                                      event.running_request_ids.end());
  std::set<std::string> unwanted;  // that it has, or will have when its queue is done
  for (const auto& [id, one] : held) unwanted.insert(id);
  for (const std::string& id : running) unwanted.insert(ModelOfReplay(id));
  unwanted.erase("");
  for (auto& [id, model] : s.models) {
    if (model.row.group != group.row.group) continue;
    const auto it = held.find(id);
    const bool wanted = (model.row.state == ModelState::kReady && !model.row.is_parked) ||
                        model.row.state == ModelState::kCreating ||
                        (model.row.state == ModelState::kLost && IsBeingLoaded(s, model));
    if (!wanted) continue;
    AdoptModel(s, group, model, it == held.end() ? nullptr : it->second, running);
    unwanted.erase(id);
  }
  for (const std::string& id : unwanted) {
    s.fx.Send(group.row.group, group.row.epoch, SendDropAdapter{"", id});
  }
}

bool IsBeingPublished(const State& s, const std::string& version_id) {
  return std::any_of(s.live.begin(), s.live.end(), [&](const auto& entry) {
    return s.requests.at(entry.second).plan->version_id == version_id;
  });
}

void AdoptVersions(State& s, Group& group, const WorkerAttached& event) {
  group.version_ids = {event.version_ids.begin(), event.version_ids.end()};
  std::set<std::string> used;
  for (auto& [id, sampler] : s.samplers) {
    if (sampler.row.version_dropped) continue;
    used.insert(sampler.row.version_id);
    if (!sampler.unnamed() || GroupForSampler(s, sampler) != &group) continue;
    if (group.version_ids.count(sampler.row.version_id) > 0) continue;
    RegainVersion(s, sampler);
  }
  for (const std::string& version_id : event.version_ids) {
    if (used.count(version_id) > 0 || IsBeingPublished(s, version_id)) continue;
    group.version_ids.erase(version_id);
    s.fx.Send(group.row.group, group.row.epoch, SendDropVersion{version_id});
  }
}

void Adopt(State& s, Group& group, const WorkerAttached& event) {
  s.fx.Send(group.row.group, group.row.epoch, AdoptGroup{s.term});
  AbandonWriting(s, group, /*process_lost=*/false);
  AdoptModels(s, group, event);
  AdoptVersions(s, group, event);
}

void Form(State& s, Group& group, const WorkerAttached& event) {
  LoseProcess(s, group, /*is_new_process=*/group.row.process_id != event.process_id);
  const bool changed = group.row.base_model != event.base_model;
  group.row.process_id = event.process_id;
  group.row.base_model = event.base_model;
  if (changed) FailUnserved(s);
  ++group.row.epoch;
  s.fx.Put(PutGroup{group.row});
  s.fx.Send(group.row.group, group.row.epoch, FormGroup{s.term});
}

// Accepted before any group of its base model was known; or its group serves another one now.
bool IsHomeless(const State& s, const Model& model) {
  if (model.row.group.empty()) return true;
  const auto it = s.groups.find(model.row.group);
  const bool moved = it != s.groups.end() && it->second.row.base_model != model.row.base_model;
  return moved && model.recovery != nullptr;
}

void PlaceHomelessModels(State& s, const Group& group) {
  for (auto& [id, model] : s.models) {
    if (model.row.base_model != group.row.base_model || !IsHomeless(s, model)) continue;
    model.row.group = group.row.group;
    PutRow(s, model);
  }
  for (const auto& [order, id] : s.live) {
    Request& request = s.requests.at(id);
    const Model* const model = Find(s.models, request.plan->model_id);
    if (model != nullptr) request.group = model->row.group;
  }
}

// What was trained on other weights cannot go on with these.
void LoseModelsOfChangedBase(State& s, const Group& group, const BaseModelRow& base) {
  const BaseModelRow* const known = Find(s.base_models, base.name);
  if (known == nullptr || known->content_hash == base.content_hash) return;
  for (auto& [id, model] : s.models) {
    if (model.row.group != group.row.group || model.row.state != ModelState::kReady) continue;
    if (model.row.base_model != base.name) continue;
    LoseModel(s, model, absl::StrFormat("the files of base model %s have changed", base.name));
  }
}

void BecomeReady(State& s, Group& group, const ReadyModel& model) {
  LoseModelsOfChangedBase(s, group, model.row);
  group.ready = true;
  group.kv_cache_tokens = model.kv_cache_tokens;
  s.base_models[model.row.name] = model.row;
  s.fx.Put(PutBaseModel{model.row});
  NotifyState(s, group, "");
  SendUnfinished(s, group);
  StartRecoveries(s, group);
}

}  // namespace

void ResumeModel(State& s, Model& model) {
  const ModelRow& row = model.row;
  // In order of acceptance. Of all that is live, only what is this model's is looked at.
  std::map<int64_t, Request*> begun;
  const auto add = [&](Request* request) {
    const bool is_live = request != nullptr && request->live();
    if (is_live && IsBegun(model, *request)) begun[request->order] = request;
  };
  for (const int64_t seq : model.order.Issued()) {
    add(FindByKey(s, row.model_id, OpClass::kTrain, seq));
  }
  add(FindByKey(s, row.session_id, OpClass::kModel, row.model_seq_id));
  add(Find(s.requests, model.unload_request_id));
  for (const auto& [order, request] : begun) SendToGroup(s, *request);
}

void OnWorkerAttached(State& s, const WorkerAttached& event) {
  auto it = s.groups.find(event.group);
  if (it == s.groups.end()) {
    GroupRow row;
    row.group = event.group;
    it = s.groups.emplace(event.group, Group(row, s.options)).first;
  }
  Group& group = it->second;
  s.fx.UseStream(event.group, event.stream_id);
  group.attached = true;
  group.ready = false;
  const bool known = event.process_id == group.row.process_id && event.epoch == group.row.epoch &&
                     event.base_model == group.row.base_model;
  if (known) {
    Adopt(s, group, event);
  } else {
    Form(s, group, event);
  }
  PlaceHomelessModels(s, group);
  if (event.ready) {
    BecomeReady(s, group, *event.ready);
  } else {
    NotifyState(s, group, absl::StrFormat("%s is loading", event.base_model));
  }
}

void OnWorkerReady(State& s, const WorkerReady& event) {
  Group* const group = Find(s.groups, event.group);
  if (group != nullptr && group->attached && !group->ready) BecomeReady(s, *group, event.model);
}

void OnWorkerDetached(State& s, const WorkerDetached& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr || !group->attached) return;
  group->attached = false;
  group->ready = false;
  group->detached_at = s.now;
  ForgetOutstanding(*group);
  NotifyState(s, *group, absl::StrFormat("waiting for a worker of %s", group->row.base_model));
  if (!event.process_gone) return;
  LoseProcess(s, *group);
  s.fx.Put(PutGroup{group->row});
}

void GiveUpLostWorkers(State& s) {
  for (auto& [name, group] : s.groups) {
    const bool waited = s.now - group.detached_at > s.options.worker_lost_timeout;
    if (group.attached || group.row.process_id.empty() || !waited) continue;
    LoseProcess(s, group);
    s.fx.Put(PutGroup{group.row});
  }
}

}  // namespace lathe::engine
