#include "services/engine/core/groups/worker_group.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/groups/ranks.h"
#include "services/engine/core/groups/worker_loss.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/models/snapshots.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/sample_placement.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/transfer_reports.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"
#include "services/engine/core/state/model_facts.h"
#include "services/engine/ledger/adoption.h"

namespace lathe::engine {
namespace {

bool Runs(const Group& group, const Request& request) { return request.group == group.row.group; }

// Sends the started operations of the group's models, in order of acceptance.
void SendBegun(State& s, const Group& group) {
  std::map<int64_t, Request*> begun;
  for (const std::string& id : s.models.IdsWith(group.row.group)) {
    const Model& model = std::as_const(s.models).at(id);
    if (model.num_live_requests == 0) continue;
    if (model.recovery == nullptr) AddBegun(s, model, begun);
    s.follow_ups.models.insert(id);
  }
  for (const auto& [order, request] : begun) SendToGroup(s, *request);
}

// Sends started operations again. Has the samples that this group may serve placed.
void SendUnfinished(State& s, Group& group) {
  ForgetOutstanding(group);
  if (!group.usable()) return;
  PlaceForGroup(s, group);
  SendBegun(s, group);
  // The request that ran alone keeps its turn only if this group still has it.
  const Request* const alone = Find(s.requests, group.alone);
  if (alone == nullptr || group.quarantined.count(alone->order) == 0) group.alone.clear();
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

// Returns true if requests after the last clear of the gradient are at the worker. The clear is
// then there too, though perhaps still queued. A second clear would queue up behind them and drop
// the next gradient.
bool HasWorkAfterClear(State& s, const Model& model, const std::set<std::string>& running) {
  for (const int64_t seq : model.order.Issued()) {
    const Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
    if (seq > model.gradient.from_seq() && running.count(request->row.request_id) > 0) return true;
  }
  return false;
}

void AdoptModel(State& s, Group& group, Model& model, const HeldModel* held,
                const std::set<std::string>& running, bool is_rebuilt) {
  // A model in another state has a request that runs, or runs again, and makes it ready.
  if (model.row.state != ModelState::kReady) return;
  // Recovery commands for the model may have been lost or may still arrive, whatever it reports to
  // hold.
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
  std::set<std::string> rebuilt;  // models with recovery commands under way
  for (const std::string& id : running) rebuilt.insert(ModelOfReplay(id));
  std::set<std::string> unwanted;  // models it has or will have after its queue
  for (const auto& [id, one] : held) unwanted.insert(id);
  for (const std::string& id : running) unwanted.insert(ModelOfReplay(id));
  unwanted.erase("");
  for (const std::string& id : s.models.IdsWith(group.row.group)) {
    Model& model = s.models.at(id);
    const auto it = held.find(id);
    const bool wanted = (model.row.state == ModelState::kReady && !model.row.is_offloaded) ||
                        model.row.state == ModelState::kCreating ||
                        (model.row.state == ModelState::kLost && IsBeingLoaded(s, model));
    if (!wanted) continue;
    AdoptModel(s, group, model, it == held.end() ? nullptr : it->second, running,
               rebuilt.count(id) > 0);
    unwanted.erase(id);
  }
  for (const std::string& id : unwanted) {
    DropFromWorker(s, group, id);
  }
}

bool IsBeingPublished(State& s, const std::string& version_id) {
  const Model* const model = Find(s.models, version_id.substr(0, version_id.rfind('@')));
  if (model == nullptr) return false;
  const std::vector<Request*> live = LiveRequestsOf(s, *model);
  return std::any_of(live.begin(), live.end(), [&](const Request* request) {
    return request->plan->version_id == version_id;
  });
}

bool IsUsed(const State& s, const std::string& version_id) {
  const std::set<std::string>& ids = s.samplers.IdsWith(version_id);
  return std::any_of(ids.begin(), ids.end(),
                     [&](const std::string& id) { return !s.samplers.at(id).row.version_dropped; });
}

// Returns true if the worker has the newest publication, or one that the core has no report of yet.
bool IsNewest(const State& s, const HeldVersion& held) {
  const auto version = s.versions.find(held.version_id);
  const bool changes = version != s.versions.end() && version->second.row.is_inflight;
  return !changes || held.seq_id >= version->second.seq_id;
}

void AdoptVersions(State& s, Group& group, const WorkerAttached& event) {
  group.version_ids.clear();
  for (const HeldVersion& held : event.versions) {
    // An earlier publication is replaced when the next sample needs it. A load under way may fail.
    if (held.is_loading || !IsNewest(s, held)) continue;
    group.version_ids.insert(held.version_id);
    Version* const version = Find(s.versions, held.version_id);
    if (version != nullptr && version->on_disk()) RecordReader(*version, group);
  }
  std::set<std::string> unnamed;
  for (const std::string& model_id : s.models.IdsWith(group.row.group)) {
    unnamed.merge(UnnamedSamplersOf(s, model_id));
  }
  for (const std::string& id : unnamed) {
    Sampler& sampler = s.samplers.at(id);
    const bool is_here = group.version_ids.count(sampler.row.version_id) > 0;
    if (!sampler.row.version_dropped && !is_here) RegainVersion(s, sampler);
  }
  for (const HeldVersion& held : event.versions) {
    if (IsUsed(s, held.version_id) || IsBeingPublished(s, held.version_id)) continue;
    group.version_ids.erase(held.version_id);
    s.fx.Send(group.row.group, group.row.epoch, SendDropVersion{held.version_id});
  }
}

// Keeps the running requests whose models need recovery. Other requests are sent again or have no
// caller.
void RecordWorkBeforeRecoveries(State& s, Group& group, const WorkerAttached& event) {
  group.at_worker.clear();
  for (const std::string& id : event.running_request_ids) {
    const Request* const request = Find(s.requests, id);
    if (request == nullptr || !request->live() || !Runs(group, *request)) continue;
    const Model* const model = Find(s.models, request->plan->model_id);
    if (model != nullptr && model->recovery != nullptr) group.at_worker.insert(id);
  }
}

void Adopt(State& s, Group& group, const WorkerAttached& event) {
  SendAdopt(s, group);
  AbandonWriting(s, group, /*process_lost=*/false);
  AbandonTransfers(s, group);
  AdoptModels(s, group, event);
  AdoptVersions(s, group, event);
  RecordWorkBeforeRecoveries(s, group, event);
}

// Loss of processes whose end was not reported before the next ones attached. A parent may still
// report the exit, too late for crash attribution. Without a parent, processes that were attached
// in this term count as crashed.
Loss LossOf(const Group& group, const std::string& session) {
  if (group.row.process_id == session) return {false, LossCause::kUnknown, ""};
  if (group.is_supervised || !group.attached_in_term) {
    return {true, LossCause::kUnknown, "another process attached"};
  }
  return {true, LossCause::kCrashed, "its process is gone"};
}

void Form(State& s, Group& group, const WorkerAttached& event, const std::string& session) {
  const Loss loss = LossOf(group, session);
  FailOverGroup(s, group, loss.is_new_process ? BestKnown(group, loss) : loss);
  const bool changed = group.row.base_model != event.base_model;
  group.row.process_id = session;
  group.row.base_model = event.base_model;
  if (changed) FailUnserved(s);
  ++group.row.epoch;
  s.fx.Put(PutGroup{group.row});
  SendForm(s, group, session);
}

// Places models without a group, and models whose group serves another base model by now. A model
// has no group if it was accepted before one of its base model was known.
void PlaceUnplacedModels(State& s, const Group& group) {
  if (!group.can_train()) return;
  std::set<std::string> placed;
  for (const auto& [place, models] : IndexOf(s).at) {
    const auto& [name, base_model] = place;
    const Group* const home = Find(s.groups, name);
    const bool has_moved = home != nullptr && home->row.base_model != base_model;
    if (base_model != group.row.base_model || (!name.empty() && !has_moved)) continue;
    for (const std::string& id : models.all) {
      const bool waits = std::as_const(s.models).at(id).recovery != nullptr;
      if (name.empty() || waits) placed.insert(id);
    }
  }
  for (const std::string& id : placed) {
    Model& model = s.models.at(id);
    SetGroup(s, model, group.row.group);
    PutRow(s, model);
    for (Request* const request : LiveRequestsOf(s, model)) {
      SetGroup(s, *request, group.row.group);
    }
  }
}

void BecomeReady(State& s, Group& group, const ReadyModel& model) {
  group.loaded = true;
  if (Refuse(s, group, model)) return;
  group.ready = true;
  group.usable_since = group.last_usable_at = s.now;
  group.kv_cache_tokens = model.kv_cache_tokens;
  group.sample_window.SetRunning(model.max_running_samples, group.mesh.dp);
  s.base_models[model.row.name] = model.row;
  s.fx.Put(PutBaseModel{model.row});
  NotifyState(s, group);
  SendUnfinished(s, group);
  QueueSamplesFrom(s, group);
  StartRecoveries(s, group);
}

// All ranks have attached, and none has joined another set.
void Begin(State& s, Group& group, const std::string& session) {
  const WorkerAttached event = *group.hello;
  group.hello.reset();
  s.fx.UseStream(event.group, event.stream_id);
  group.attached = true;
  group.role = event.role;
  group.serves_versions = event.serves_versions;
  for (Rank& rank : group.ranks) rank.session = session;
  if (IsFormed(group, session) && event.base_model == group.row.base_model) {
    Adopt(s, group, event);
  } else {
    Form(s, group, event, session);
  }
  RecordProcesses(group);
  group.attached_in_term = true;
  group.loaded = false;
  group.next_try_at = 0;
  group.evict_at = 0;
  PlaceUnplacedModels(s, group);
  if (event.ready) {
    BecomeReady(s, group, *event.ready);
  } else {
    NotifyState(s, group);
  }
}

void Assemble(State& s, Group& group) {
  if (!MissingRanks(group).empty()) return NotifyState(s, group);
  const std::string session = SessionOf(group);
  // Rank 0 without its hello belongs to a set that is lost.
  if (group.hello && !HasJoinedOtherSet(group, session)) return Begin(s, group, session);
  DeclareGroupDead(s, group, LossOf(group, session));
  NotifyState(s, group);
}

}  // namespace

void OnWorkerAttached(State& s, const WorkerAttached& event) {
  auto it = s.groups.find(event.group);
  if (it == s.groups.end()) {
    GroupRow row;
    row.group = event.group;
    it = s.groups.emplace(event.group, Group(row, s.options)).first;
    it->second.last_usable_at = s.now;
  }
  Group& group = it->second;
  const Rank* const before = FindRank(group, event.rank);
  const bool is_known = before != nullptr && before->process_id == event.process_id;
  if (HasOtherMesh(group, event.mesh)) {
    DeclareGroupDead(s, group, {.how = "ranks of another mesh attached"});
  }
  RecordArrival(group, event);
  if (event.rank == 0) {
    Detach(group);
    group.hello = event;
  } else if (group.attached && is_known) {
    return Rejoin(s, group, *FindRank(group, event.rank));
  } else if (group.attached) {
    DeclareGroupDead(s, group, LossOf(group, SessionOf(group)));
  }
  Assemble(s, group);
}

void OnWorkerReady(State& s, const WorkerReady& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr) return;
  if (group->attached && !group->ready) BecomeReady(s, *group, event.model);
  if (group->hello) group->hello->ready = event.model;
}

void UseRefused(State& s) {
  for (auto& [name, group] : s.groups) {
    if (!group.refused_model || !group.attached) continue;
    const ReadyModel model = *group.refused_model;
    BecomeReady(s, group, model);
  }
}

}  // namespace lathe::engine
