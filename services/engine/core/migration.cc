#include "services/engine/core/migration.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/errors.h"
#include "services/engine/core/group_state.h"
#include "services/engine/core/model_end.h"
#include "services/engine/core/models.h"
#include "services/engine/core/offload.h"
#include "services/engine/core/operations.h"
#include "services/engine/core/placement.h"
#include "services/engine/core/recovery.h"
#include "services/engine/core/recovery_need.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/sample_queue.h"
#include "services/engine/core/versions.h"
#include "services/engine/core/worker_loss.h"

namespace lathe::engine {
namespace {

// Returns true if the model uses its group or may use it: a load can restore even a lost model.
bool HasHome(const Model& model) {
  const ModelState state = model.row.state;
  return state == ModelState::kCreating || state == ModelState::kReady ||
         state == ModelState::kLost;
}

bool Serves(const Group& group, const Model& model) {
  return group.row.base_model == model.row.base_model && group.can_train();
}

// Returns true if the group will probably not serve the model again.
bool IsGroupLost(const State& s, const Model& model) {
  const Group* const group = Find(s.groups, model.row.group);
  if (group == nullptr || !Serves(*group, model)) return true;
  const int64_t limit = s.options.group_lost_timeout;
  const bool is_gone = limit > 0 && group->row.process_id.empty();
  return is_gone && s.now - group->last_usable_at > limit;
}

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
  s.dirty_models.insert(model.row.model_id);
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

std::set<std::string> MigrationSources(const State& s) {
  std::set<std::string> groups;
  for (const auto& [id, model] : s.models) {
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
    model.recovery->not_before = 0;
  }
  for (Request* const request : LiveRequestsOf(s, model)) {
    TakeBack(s, *request);
    MoveToGroup(s, *request, to.row.group);
  }
  for (auto& [id, version] : s.versions) {
    if (version.row.model_id != model.row.model_id) continue;
    version.saving_dir.clear();  // a late report of that write still counts
    StopReading(s, version, model.row.group, /*all=*/true);
  }
  model.row.group = to.row.group;
  model.row.move_to.clear();
  model.migrating_since = 0;
  PutRow(s, model);
  s.dirty_models.insert(model.row.model_id);
  if (model.recovery == nullptr) ResumeModel(s, model);
}

void QueueSamplesOfModels(State& s, const std::set<std::string>& model_ids) {
  std::set<std::string> version_ids;
  for (const auto& [id, version] : s.versions) {
    if (model_ids.count(version.row.model_id) > 0) version_ids.insert(id);
  }
  if (!version_ids.empty()) QueueSamplesOf(s, version_ids);
}

// ---- operators' calls

// Names for people: "a, b, c". Lists at most kMost.
template <typename Map, typename Filter>
std::string Names(const Map& map, const Filter& filter) {
  constexpr size_t kMost = 16;
  std::vector<std::string> names;
  size_t num = 0;
  for (const auto& [name, one] : map) {
    if (!filter(one)) continue;
    if (++num <= kMost) names.push_back(name);
  }
  if (names.empty()) return "none";
  const std::string more = num > kMost ? absl::StrFormat(" and %d more", num - kMost) : "";
  return absl::StrCat(absl::StrJoin(names, ", "), more);
}

// Returns null if there is no such group, or if it was removed.
template <typename S>
auto* FindPresent(S& s, const std::string& name) {
  auto* const group = Find(s.groups, name);
  return group == nullptr || group->removed() ? nullptr : group;
}

bool IsPresent(const Group& group) { return !group.removed(); }

ErrorInfo UnknownGroup(const State& s, const std::string& group) {
  ErrorInfo error = NotFound("group", group);
  error.field = "group";
  error.message = absl::StrFormat("group is '%s', which does not exist; groups: %s", group,
                                  Names(s.groups, IsPresent));
  return error;
}

ErrorInfo UnknownModel(const State& s, const std::string& model_id) {
  ErrorInfo error = NotFound("model", model_id);
  error.field = "model_id";
  error.message = absl::StrFormat("model_id is '%s', which no live model has; live models: %s",
                                  model_id, Names(s.models, HasHome));
  return error;
}

// Returns why the model cannot migrate to `to`; empty: it can.
std::string MigrationObstacle(const Group& to, const Model& model) {
  if (to.row.base_model != model.row.base_model) {
    return absl::StrFormat("serves %s, and the model is one of %s", to.row.base_model,
                           model.row.base_model);
  }
  if (!to.can_train()) return "has the role to sample only";
  if (to.row.is_draining) return "is drained";
  return to.usable() ? "" : "has no worker that is ready";
}

// Returns true if `other` could take over some of the work of `group`.
bool CanTakeOver(const Group& other, const Group& group) {
  return &other != &group && other.row.base_model == group.row.base_model && other.usable() &&
         !other.row.is_draining;
}

// The kind of work that only this group does; empty: none.
std::string IrreplaceableRole(const State& s, const Group& group) {
  const auto any = [&](const auto& does) {
    return std::any_of(s.groups.begin(), s.groups.end(), [&](const auto& entry) {
      return CanTakeOver(entry.second, group) && does(entry.second);
    });
  };
  if (group.can_train() && !any([](const Group& g) { return g.can_train(); })) return "trains";
  if (group.can_sample() && !any([](const Group& g) { return g.can_sample(); })) return "samples";
  return "";
}

void AnswerOk(State& s, CallId call) {
  Answer answer;
  answer.call = call;
  s.fx.After(std::move(answer));
}

// Returns what is on the group: "2 models, 1 request".
std::string LeftOn(const State& s, const Group& group) {
  const std::string& name = group.row.group;
  const auto num_models = std::count_if(s.models.begin(), s.models.end(), [&](const auto& entry) {
    return entry.second.row.group == name && HasHome(entry.second);
  });
  const auto num_requests = std::count_if(s.live.begin(), s.live.end(), [&](const auto& entry) {
    return s.requests.at(entry.second).group == name;
  });
  const auto num_versions =
      std::count_if(s.versions.begin(), s.versions.end(), [&](const auto& entry) {
        return !entry.second.on_disk() && group.version_ids.count(entry.first) > 0;
      });
  std::vector<std::string> left;
  const auto add = [&](int64_t num, const char* what) {
    if (num > 0) left.push_back(absl::StrCat(num, " ", what, num == 1 ? "" : "s"));
  };
  add(num_models, "model");
  add(num_requests, "request");
  add(num_versions, "unwritten sampler version");
  return absl::StrJoin(left, ", ");
}

}  // namespace

void OnMoveModel(State& s, const MoveModel& event) {
  Model* const model = Find(s.models, event.model_id);
  if (model == nullptr || !HasHome(*model)) {
    return AnswerError(s, event.call, UnknownModel(s, event.model_id));
  }
  const Group* const to = FindPresent(s, event.group);
  if (to == nullptr) return AnswerError(s, event.call, UnknownGroup(s, event.group));
  const bool stays = model->row.group == event.group;
  const std::string why_not = stays ? "" : MigrationObstacle(*to, *model);
  if (!why_not.empty()) {
    const auto can_take = [&](const Group& group) {
      return MigrationObstacle(group, *model).empty();
    };
    ErrorInfo error = FailedPrecondition(
        "group_cannot_take_it",
        absl::StrFormat("group is '%s', which %s; groups that could take model %s: %s", event.group,
                        why_not, event.model_id, Names(s.groups, can_take)));
    error.field = "group";
    return AnswerError(s, event.call, std::move(error));
  }
  model->row.move_to = stays ? "" : event.group;
  PutRow(s, *model);
  AnswerOk(s, event.call);
}

void OnDrainGroup(State& s, const DrainGroup& event) {
  Group* const group = FindPresent(s, event.group);
  if (group == nullptr) return AnswerError(s, event.call, UnknownGroup(s, event.group));
  const std::string does = event.is_draining ? IrreplaceableRole(s, *group) : "";
  if (!does.empty()) {
    ErrorInfo error = FailedPrecondition(
        "no_other_group",
        absl::StrFormat("group is '%s': no other group that is ready and not drained %s %s; there "
                        "are: %s",
                        event.group, does, group->row.base_model, Names(s.groups, IsPresent)));
    error.field = "group";
    return AnswerError(s, event.call, std::move(error));
  }
  group->row.is_draining = event.is_draining;
  s.fx.Put(PutGroup{group->row});
  NotifyGroupDrains(s);
  AnswerOk(s, event.call);
}

void OnRemoveGroup(State& s, const RemoveGroup& event) {
  Group* const group = FindPresent(s, event.group);
  if (group == nullptr) return AnswerError(s, event.call, UnknownGroup(s, event.group));
  const auto rank = std::find_if(group->ranks.begin(), group->ranks.end(),
                                 [](const Rank& one) { return one.attached; });
  if (rank != group->ranks.end()) {
    ErrorInfo error = FailedPrecondition(
        "group_has_worker",
        absl::StrFormat("group is '%s', which has an attached worker, process %d; stop its workers "
                        "first",
                        event.group, rank->pid));
    error.field = "group";
    return AnswerError(s, event.call, std::move(error));
  }
  if (!group->row.process_id.empty()) {
    DeclareGroupDead(s, *group, {.cause = LossCause::kUnknown, .how = "the group was removed"});
  }
  group->row.base_model.clear();
  group->row.is_draining = false;
  s.fx.Put(PutGroup{group->row});
  Forgive(s, *group);
  NotifyGroupDrains(s);
  FailUnserved(s);
  AnswerOk(s, event.call);
}

void MigrateModels(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.usable()) group.last_usable_at = s.now;
  }
  GroupLoads loads = LoadsOfGroups(s);
  std::set<std::string> migrating = MigrationSources(s);
  std::set<std::string> migrated;
  std::set<std::string> targets;
  for (auto& [id, model] : s.models) {
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

void NotifyGroupDrains(State& s) {
  for (auto& [name, group] : s.groups) {
    const bool is_draining = group.row.is_draining;
    if (!is_draining && !group.notified_drain.is_draining) continue;
    const NotifyGroupDrain now{name, is_draining, is_draining ? LeftOn(s, group) : ""};
    if (now == group.notified_drain) continue;
    group.notified_drain = now;
    s.fx.After(now);
  }
}

std::string MigrationWaitReason(State& s, const Model& model) {
  if (model.migrating_since > 0) return "its model is being moved to another group";
  const Group* const home = Find(s.groups, model.row.group);
  const bool stays = home != nullptr && IsToBeOnWorker(s, model) && IsGroupLost(s, model) &&
                     MayKillWorkers(s, model);
  return stays ? "its model is not moved to another group, as it may have ended its worker "
                 "repeatedly; `lathe move` moves it all the same"
               : "";
}

}  // namespace lathe::engine
