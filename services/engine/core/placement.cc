#include "services/engine/core/placement.h"

#include <map>
#include <set>
#include <vector>

#include "services/engine/core/models.h"
#include "services/engine/core/recovery.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/samplers.h"
#include "services/engine/core/worker_group.h"

namespace lathe::engine {
namespace {

bool IsToBeOnWorker(State& s, const Model& model) {
  switch (model.row.state) {
    case ModelState::kCreating:
      return true;
    case ModelState::kReady:
      return !model.row.is_parked;
    case ModelState::kLost:
      return IsBeingLoaded(s, model);
    default:
      return false;
  }
}

// Its group will not go on with it, as far as can be known.
bool IsForsaken(const State& s, const Model& model) {
  const Group* const group = Find(s.groups, model.row.group);
  if (group == nullptr || group->row.base_model != model.row.base_model) return true;
  if (!group->can_train()) return true;
  const int64_t limit = s.options.group_lost_timeout;
  const bool is_gone = limit > 0 && group->row.process_id.empty();
  return is_gone && s.now - group->last_usable_at > limit;
}

std::vector<std::string> LiveRequestIds(const State& s, const Model& model) {
  std::vector<std::string> ids;
  for (const auto& [order, id] : s.live) {
    if (s.requests.at(id).plan->model_id == model.row.model_id) ids.push_back(id);
  }
  return ids;
}

void Move(State& s, Model& model, const Group& to) {
  if (model.row.state == ModelState::kReady) NeedRecovery(s, model);
  if (model.recovery != nullptr) {  // what failed on the other group
    model.recovery->num_failures = 0;
    model.recovery->not_before = 0;
  }
  for (const std::string& id : LiveRequestIds(s, model)) {
    Request& request = s.requests.at(id);
    TakeBack(s, request);
    MoveToGroup(s, request, to.row.group);
  }
  model.row.group = to.row.group;
  PutRow(s, model);
  s.dirty_models.insert(model.row.model_id);
  if (model.recovery == nullptr) ResumeModel(s, model);
  std::vector<std::string> version_ids;
  for (const auto& [id, version] : s.versions) {
    if (version.row.model_id == model.row.model_id) version_ids.push_back(id);
  }
  for (const std::string& id : version_ids) QueueSamplesOf(s, id);
}

}  // namespace

Group* GroupForModel(State& s, const std::string& base_model) {
  std::map<std::string, int64_t> num_models;
  for (const auto& [id, model] : s.models) {
    if (IsToBeOnWorker(s, model)) ++num_models[model.row.group];
  }
  Group* best = nullptr;
  const auto rank = [&](const Group& group) {
    return std::pair(group.usable() ? 0 : 1, num_models[group.row.group]);
  };
  for (auto& [name, group] : s.groups) {
    if (group.row.base_model != base_model || !group.can_train()) continue;
    if (best == nullptr || rank(group) < rank(*best)) best = &group;
  }
  return best;
}

void TellNoGroup(State& s) {
  s.fx.After(NotifyQueueState{
      "", /*paused=*/true, "waiting for a worker group of the base model whose role is to do it"});
}

void MoveModels(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.usable()) group.last_usable_at = s.now;
  }
  std::set<std::string> targets;
  for (auto& [id, model] : s.models) {
    if (!IsForsaken(s, model) || !IsToBeOnWorker(s, model)) continue;
    const Group* const to = GroupForModel(s, model.row.base_model);
    if (to == nullptr || !to->usable()) continue;
    Move(s, model, *to);
    targets.insert(to->row.group);
  }
  for (const std::string& name : targets) StartRecoveries(s, s.groups.at(name));
}

}  // namespace lathe::engine
