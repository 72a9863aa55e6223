#include "services/engine/core/groups/group_calls.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/groups/worker_loss.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {
namespace {

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

// Appends a row to the audit log, in the same commit as the change.
void Audit(State& s, const std::string& tenant_id, const std::string& actor, const char* event,
           const std::string& object, const Metadata& details = {}) {
  s.fx.Put(AppendAudit{{.at = s.now,
                        .tenant_id = tenant_id,
                        .resource = "organizations",
                        .event = event,
                        .actor = actor,
                        .object = object,
                        .outcome = "ok",
                        .details = details}});
}

void AnswerOk(State& s, CallId call) {
  Answer answer;
  answer.call = call;
  s.fx.After(std::move(answer));
}

// Returns what is on the group: "2 models, 1 request".
std::string LeftOn(State& s, const Group& group) {
  const std::string& name = group.row.group;
  size_t num_models = 0;
  IndexOf(s).VisitGroup(
      name, [&](const ModelsAt& models) { num_models += models.with_home.ids().size(); });
  const auto* const requests = Find(s.live_by_group, name);
  const size_t num_requests = requests == nullptr ? 0 : requests->size();
  const std::set<std::string>& unsaved = s.unsaved_versions.ids();
  const auto num_versions =
      std::count_if(unsaved.begin(), unsaved.end(), [&](const std::string& id) {
        return !s.versions.at(id).on_disk() && group.version_ids.count(id) > 0;
      });
  std::vector<std::string> left;
  const auto add = [&](auto num, const char* what) {
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
  // The log of the actor's tenant does not name the model, which may be another tenant's.
  Audit(s, model->row.tenant_id, event.actor, "model_move", event.model_id,
        {{"from", model->row.group}, {"to", event.group}});
  Audit(s, event.tenant_id, event.actor, "group_take_model", event.group,
        {{"from", model->row.group}});
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
  Audit(s, event.tenant_id, event.actor, event.is_draining ? "group_drain" : "group_resume",
        event.group);
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
  Audit(s, event.tenant_id, event.actor, "group_remove", event.group,
        {{"base_model", group->row.base_model}});
  group->row.base_model.clear();
  group->row.is_draining = false;
  s.fx.Put(PutGroup{group->row});
  Forgive(s, *group);
  NotifyGroupDrains(s);
  FailUnserved(s);
  AnswerOk(s, event.call);
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

}  // namespace lathe::engine
