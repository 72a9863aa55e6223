#include "services/engine/core/groups/group_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/core/groups/ranks.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {
namespace {

std::string WaitReason(const Group& group) {
  if (group.removed()) return "waiting for a worker group of the base model";
  const std::string waits =
      group.attached ? absl::StrFormat("%s is loading", group.row.base_model)
      : group.ranks.size() == 1
          ? absl::StrFormat("waiting for a worker of %s", group.row.base_model)
          : absl::StrFormat("waiting for %s", MissingRanks(group));
  // If the group is degraded, WhyDegraded reports the deaths instead.
  if (group.deaths.empty() || group.degraded) return waits;
  return absl::StrFormat("%s; the last one: %s", waits, group.last_death);
}

std::string WhyDegraded(const State& s, const Group& group) {
  const std::string deaths =
      absl::StrFormat("worker died %d times in %d minutes, last: %s", group.deaths.size(),
                      s.options.crash_loop_window / (60 * kSecond), group.last_death);
  if (group.attached || group.next_try_at <= s.now) {
    return absl::StrCat(deaths, "; ", WaitReason(group));
  }
  return absl::StrFormat("%s; next try in %d s", deaths,
                         (group.next_try_at - s.now + kSecond - 1) / kSecond);
}

std::string WhyPaused(const State& s, const Group& group) {
  if (group.usable()) return "";
  if (!group.refused.empty()) return group.refused;
  return group.degraded ? WhyDegraded(s, group) : WaitReason(group);
}

// Number of models and sampler versions that require the weights they were made with.
int64_t NumNeeding(State& s, const std::string& base_model) {
  const int64_t* const num_models = Find(IndexOf(s).num_ready, base_model);
  const int64_t* const num_versions = Find(s.num_unnamed, base_model);
  return (num_models == nullptr ? 0 : *num_models) + (num_versions == nullptr ? 0 : *num_versions);
}

std::string WhenItDied(const Group& group, const std::string& how, bool was_loaded) {
  return was_loaded ? how : absl::StrFormat("%s while loading %s", how, group.row.base_model);
}

void CountDeath(State& s, Group& group) {
  group.deaths.push_back(s.now);
  const int64_t from = s.now - s.options.crash_loop_window;
  while (group.deaths.front() < from) group.deaths.pop_front();
  constexpr int64_t kMaxCounted = 1000;
  const auto num_deaths = static_cast<int64_t>(group.deaths.size());
  if (num_deaths > kMaxCounted) group.deaths.pop_front();
  if (num_deaths >= s.options.crash_loop_deaths) group.degraded = true;
}

void Heal(State& s, Group& group) {
  group.deaths.clear();
  if (!group.degraded) return;
  group.degraded = false;
  NotifyState(s, group);
}

}  // namespace

bool IsDeath(LossCause cause) {
  return cause != LossCause::kEnded && cause != LossCause::kUnknown &&
         cause != LossCause::kPeerGone;
}

bool IsByItself(LossCause cause) {
  return cause == LossCause::kCrashed || cause == LossCause::kOutOfMemory;
}

void NotifyState(State& s, const Group& group) {
  const GroupTrouble trouble = !group.refused.empty() ? GroupTrouble::kRefused
                               : group.degraded       ? GroupTrouble::kDegraded
                                                      : GroupTrouble::kNone;
  s.fx.After(
      NotifyQueueState{group.row.group, /*paused=*/!group.usable(), WhyPaused(s, group), trouble});
}

void RecordDeath(State& s, Group& group, LossCause cause, const std::string& how, bool was_loaded) {
  s.fx.After(RecordWorkerLost{group.row.group, cause, how});
  if (!IsDeath(cause)) return;
  CountDeath(s, group);
  group.last_death = WhenItDied(group, how, was_loaded);
}

void RecordLostPeer(State& s, Group& group, const std::string& how, bool was_loaded) {
  s.fx.After(RecordWorkerLost{group.row.group, LossCause::kPeerGone, how});
  CountDeath(s, group);
  group.last_death = WhenItDied(group, how, was_loaded);
}

void ExplainDeath(State& s, Group& group, LossCause cause, const std::string& how,
                  bool was_loaded) {
  s.fx.After(RecordWorkerLost{group.row.group, cause, how});
  group.last_death = WhenItDied(group, how, was_loaded);
}

void Forgive(State& s, Group& group) {
  Heal(s, group);
  NotifyState(s, group);
}

void RecordWorkDone(State& s, Group& group) {
  if (!group.deaths.empty()) Heal(s, group);
}

void HealGroups(State& s) {
  for (auto& [name, group] : s.groups) {
    const bool lives =
        group.usable() && s.now - group.usable_since >= s.options.worker_healthy_after;
    if (lives) {
      Heal(s, group);
    } else if (group.degraded && !group.usable()) {
      NotifyState(s, group);  // updates the time to the next try
    }
  }
}

bool Refuse(State& s, Group& group, const ReadyModel& model) {
  group.refused.clear();
  group.refused_model.reset();
  const auto refusing = std::find_if(group.ranks.begin(), group.ranks.end(),
                                     [](const Rank& rank) { return !rank.refusal.empty(); });
  if (refusing != group.ranks.end()) {
    group.refused = NameRank(group, refusing - group.ranks.begin(), refusing->refusal);
    group.refused_model = model;
    NotifyState(s, group);
    return true;
  }
  const BaseModelRow* const known = Find(s.base_models, model.row.name);
  if (known == nullptr || known->content_hash == model.row.content_hash) return false;
  const int64_t num_needing = NumNeeding(s, model.row.name);
  if (num_needing == 0) return false;
  group.refused = absl::StrFormat(
      "the files of base model %s have changed: the worker has content hash %s, %d models and "
      "sampler versions were made with %s; start the worker with those files again, or end their "
      "sessions",
      model.row.name, model.row.content_hash, num_needing, known->content_hash);
  group.refused_model = model;
  NotifyState(s, group);
  return true;
}

}  // namespace lathe::engine
