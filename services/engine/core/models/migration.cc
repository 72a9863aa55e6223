#include "services/engine/core/models/migration.h"

#include <set>
#include <utility>
#include <vector>

#include "services/engine/core/models/models.h"
#include "services/engine/core/models/offload.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/versions.h"

namespace lathe::engine {
namespace {

// Returns true if no worker has the model's state and none will attach with it. The state on a lost
// group is gone, or is dropped when the group returns.
bool HasNoState(State& s, const Model& model) {
  const Group* const home = Find(s.groups, model.row.group);
  return home == nullptr || home->row.process_id.empty() || !Serves(*home, model) ||
         !IsToBeOnWorker(s, model);
}

// Returns true if a worker has the model's state and can get commands for it.
bool Lives(const Group& home, const Model& model) {
  return home.usable() && model.row.state == ModelState::kReady && model.recovery == nullptr;
}

// Returns true if the recovery has not started, so any state on the worker is of no use.
bool WaitsForRecovery(State& s, const Group& home, const Model& model) {
  return home.attached && model.recovery != nullptr && !model.recovery->started &&
         !HasWorkAtWorker(s, model);
}

// The group that an operator asked for; nullptr: none, or it cannot take the model now.
Group* ChosenGroup(State& s, Model& model) {
  if (model.row.move_to.empty()) return nullptr;
  Group* const to = Find(s.groups, model.row.move_to);
  const bool will_do = to != nullptr && Serves(*to, model) && !to->row.is_draining &&
                       to->row.group != model.row.group;
  if (!will_do) {
    model.row.move_to.clear();
    PutRow(s, model);
  }
  return will_do && to->usable() ? to : nullptr;
}

// The group to which the model should migrate; nullptr: it stays.
Group* TargetOf(State& s, Model& model, const GroupLoads& loads) {
  if (!HasHome(model)) return nullptr;
  if (Group* const chosen = ChosenGroup(s, model)) return chosen;
  const Group* const home = Find(s.groups, model.row.group);
  const bool is_group_lost = IsToBeOnWorker(s, model) && IsGroupLost(s, model);
  const bool is_drained = home != nullptr && home->row.is_draining;
  if ((!is_group_lost && !is_drained) || MayKillWorkers(s, model)) return nullptr;
  Group* const to = LeastLoaded(s, model.row.base_model, loads);
  const bool can_take =
      to != nullptr && to != home && to->usable() && (is_group_lost || !to->row.is_draining);
  return can_take ? to : nullptr;
}

void CancelMigration(State& s, Model& model) {
  if (model.migrating_since == 0) return;
  model.migrating_since = 0;
  s.follow_ups.models.insert(model.row.model_id);
}

// Prepares the migration of a live model: none of its requests start, and it may migrate when it is
// on disk. Each group prepares one model at a time, as they are written one by one. `migrating` has
// the groups with a model in preparation. The other models continue meanwhile, and so does one that
// cannot be written. Returns true when the model is on disk.
bool PrepareMigration(State& s, Model& model, std::set<std::string>& migrating) {
  constexpr int64_t kMaxWait = 60 * kSecond;
  const bool is_over = model.migrating_since > 0 && s.now - model.migrating_since > kMaxWait;
  if (is_over) model.stays_until = s.now + kMaxWait;
  if (is_over || !model.unload_request_id.empty()) {
    CancelMigration(s, model);
    return false;
  }
  if (s.now < model.stays_until) return false;
  if (model.migrating_since == 0 && !migrating.insert(model.row.group).second) return false;
  const bool runs = !model.order.Issued().empty();
  if (runs || model.migrating_since == 0) model.migrating_since = s.now;
  return !runs && IsOnDisk(s, model, model.migrating_since);
}

bool CanMigrate(State& s, Model& model, std::set<std::string>& migrating) {
  const Group* const home = Find(s.groups, model.row.group);
  if (!HasNoState(s, model) && Lives(*home, model)) return PrepareMigration(s, model, migrating);
  CancelMigration(s, model);
  return HasNoState(s, model) || WaitsForRecovery(s, *home, model);
}

// Returns true if models may have to leave that place.
bool IsLeft(const State& s, const ModelIndex::Place& place) {
  const auto& [name, base_model] = place;
  const Group* const group = Find(s.groups, name);
  if (group == nullptr || group->row.is_draining) return true;
  return IsGroupLost(s, *group, base_model);
}

// The models that may have to migrate, as many as a sweep handles.
std::set<std::string> ModelsToLookAt(State& s) {
  ModelIndex& index = IndexOf(s);
  const std::vector<std::string> moving = index.moving.Next(s.options.max_swept);
  std::set<std::string> ids(moving.begin(), moving.end());
  int64_t left = s.options.max_swept;
  for (auto& [place, models] : index.at) {
    if (!IsLeft(s, place)) continue;
    const std::vector<std::string> next = models.with_home.Next(left);
    left -= static_cast<int64_t>(next.size());
    ids.insert(next.begin(), next.end());
  }
  return ids;
}

std::set<std::string> MigrationSources(State& s) {
  std::set<std::string> groups;
  for (const std::string& id : IndexOf(s).moving.ids()) {
    const Model& model = std::as_const(s.models).at(id);
    if (model.migrating_since > 0) groups.insert(model.row.group);
  }
  return groups;
}

void Migrate(State& s, Model& model, const Group& to) {
  const Group* const home = Find(s.groups, model.row.group);
  const bool was_there = !HasNoState(s, model);
  const bool lived = was_there && Lives(*home, model);
  if (model.row.state == ModelState::kReady) NeedRecovery(s, model);
  if (was_there && home->usable()) DropFromWorker(s, *home, model.row.model_id);
  if (lived) model.recovery->resumes = true;
  if (model.recovery != nullptr) {  // failures on the other group do not count
    model.recovery->num_failures = 0;
    model.recovery->num_unavailable = 0;
    model.recovery->last_error.clear();
    model.recovery->not_before = 0;
  }
  for (Request* const request : LiveRequestsOf(s, model)) {
    TakeBack(s, *request);
    MoveToGroup(s, *request, to.row.group);
  }
  for (const std::string& id : s.versions.IdsWith(model.row.model_id)) {
    Version& version = s.versions.at(id);
    version.saving_dir.clear();  // a late report of that write still counts
    StopReading(s, version, model.row.group, /*all=*/true);
  }
  SetGroup(s, model, to.row.group);
  model.row.move_to.clear();
  model.migrating_since = 0;
  PutRow(s, model);
  s.follow_ups.models.insert(model.row.model_id);
  if (model.recovery == nullptr) ResumeModel(s, model);
}

void QueueSamplesOfModels(State& s, const std::set<std::string>& model_ids) {
  std::set<std::string> version_ids;
  for (const std::string& model_id : model_ids) {
    const std::set<std::string>& ids = s.versions.IdsWith(model_id);
    version_ids.insert(ids.begin(), ids.end());
  }
  if (!version_ids.empty()) QueueSamplesOf(s, version_ids);
}

}  // namespace

void MigrateModels(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.usable()) group.last_usable_at = s.now;
  }
  GroupLoads loads = LoadsOfGroups(s);
  std::set<std::string> migrating = MigrationSources(s);
  std::set<std::string> migrated;
  std::set<std::string> targets;
  for (const std::string& id : ModelsToLookAt(s)) {
    Model& model = s.models.at(id);
    const Group* const to = TargetOf(s, model, loads);
    if (to == nullptr) {
      CancelMigration(s, model);
    } else if (CanMigrate(s, model, migrating)) {
      loads[model.row.group] -= LoadOf(s, model);
      loads[to->row.group] += LoadOf(s, model);
      Migrate(s, model, *to);
      migrated.insert(id);
      targets.insert(to->row.group);
    }
  }
  if (migrated.empty()) return;
  QueueSamplesOfModels(s, migrated);
  for (const std::string& name : targets) StartRecoveries(s, s.groups.at(name));
}

}  // namespace lathe::engine
