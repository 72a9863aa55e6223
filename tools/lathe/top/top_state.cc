#include "tools/lathe/top/top_state.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::cli {
namespace {

constexpr std::size_t kMaxEvents = 100;
// Events about runs that one status may add. A restart can change thousands of them.
constexpr int kMaxRunEvents = 10;

std::map<std::string, const v1::GroupStatus*> GroupsByName(const v1::GetStatusResponse& status) {
  std::map<std::string, const v1::GroupStatus*> groups;
  for (const v1::GroupStatus& group : status.groups()) groups[group.group()] = &group;
  return groups;
}

std::map<std::string, const v1::ModelStatus*> RunsById(const v1::GetStatusResponse& status) {
  std::map<std::string, const v1::ModelStatus*> runs;
  for (const v1::ModelStatus& model : status.models()) runs[model.model_id()] = &model;
  return runs;
}

std::string GroupCondition(const v1::GroupStatus& group) {
  return group.drain().empty() ? group.state() : absl::StrCat(group.state(), ", ", group.drain());
}

std::map<int64_t, int64_t> PidsByRank(const v1::GroupStatus& group) {
  std::map<int64_t, int64_t> pids;
  for (const v1::RankStatus& rank : group.ranks()) pids[rank.rank()] = rank.pid();
  return pids;
}

// Returns what is new about the ranks; empty: nothing.
std::string RankChanges(const v1::GroupStatus& before, const v1::GroupStatus& after) {
  const std::map<int64_t, int64_t> old_pids = PidsByRank(before);
  const std::map<int64_t, int64_t> new_pids = PidsByRank(after);
  std::string text;
  for (const auto& [rank, pid] : new_pids) {
    const auto old = old_pids.find(rank);
    if (old != old_pids.end() && old->second == pid) continue;
    absl::StrAppend(&text, "; rank ", rank, old == old_pids.end() ? " attached" : " restarted",
                    ", pid ", pid);
  }
  for (const auto& [rank, pid] : old_pids) {
    if (!new_pids.contains(rank)) absl::StrAppend(&text, "; rank ", rank, " gone, pid ", pid);
  }
  return text.empty() ? text : text.substr(2);
}

// Returns what is new about a run; empty: nothing.
std::string RunChange(const v1::ModelStatus& before, const v1::ModelStatus& after) {
  if (before.state() != after.state()) return absl::StrCat(before.state(), " -> ", after.state());
  if (before.group() == after.group()) return "";
  return absl::StrCat("group ", before.group().empty() ? "none" : before.group(), " -> ",
                      after.group().empty() ? "none" : after.group());
}

}  // namespace

void TopState::Say(absl::Time now, const std::string& text) {
  events_.push_back({now, text});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void TopState::CompareGroups(const v1::GetStatusResponse& next, absl::Time now) {
  const std::map<std::string, const v1::GroupStatus*> before = GroupsByName(status_);
  const std::map<std::string, const v1::GroupStatus*> after = GroupsByName(next);
  for (const auto& [name, group] : after) {
    const auto old = before.find(name);
    const std::string condition = GroupCondition(*group);
    if (old == before.end()) {
      Say(now, absl::StrCat("group ", name, ": ", condition));
      continue;
    }
    const std::string old_condition = GroupCondition(*old->second);
    if (condition != old_condition) {
      Say(now, absl::StrCat("group ", name, ": ", old_condition, " -> ", condition,
                            group->reason().empty() ? "" : ": ", group->reason()));
    }
    const std::string ranks = RankChanges(*old->second, *group);
    if (!ranks.empty()) Say(now, absl::StrCat("group ", name, ": ", ranks));
  }
  for (const auto& [name, group] : before) {
    if (!after.contains(name)) Say(now, absl::StrCat("group ", name, ": removed"));
  }
}

void TopState::CompareRuns(const v1::GetStatusResponse& next, absl::Time now) {
  const std::map<std::string, const v1::ModelStatus*> before = RunsById(status_);
  const std::map<std::string, const v1::ModelStatus*> after = RunsById(next);
  int num_events = 0;
  const auto say = [&](const std::string& id, const std::string& what) {
    if (++num_events <= kMaxRunEvents) Say(now, absl::StrCat("run ", id, ": ", what));
  };
  for (const auto& [id, run] : after) {
    const auto old = before.find(id);
    const std::string change = old == before.end() ? absl::StrCat("new, of ", run->tenant())
                                                   : RunChange(*old->second, *run);
    if (!change.empty()) say(id, change);
  }
  for (const auto& [id, run] : before) {
    if (!after.contains(id)) say(id, "ended");
  }
  if (num_events > kMaxRunEvents) {
    Say(now, absl::StrCat(num_events - kMaxRunEvents, " more runs have changed"));
  }
}

// The counters begin again with a new worker.
void TopState::Measure(const v1::GetStatusResponse& next, absl::Duration passed) {
  rates_.clear();
  const double seconds = absl::ToDoubleSeconds(passed);
  if (seconds <= 0) return;
  const std::map<std::string, const v1::GroupStatus*> before = GroupsByName(status_);
  for (const v1::GroupStatus& group : next.groups()) {
    const auto old = before.find(group.group());
    if (old == before.end() || !old->second->has_counters() || !group.has_counters()) continue;
    const int64_t passes = group.counters().train_passes() - old->second->counters().train_passes();
    const int64_t tokens =
        group.counters().generated_tokens() - old->second->counters().generated_tokens();
    if (passes < 0 || tokens < 0) continue;
    rates_[group.group()] = {.train_passes = static_cast<double>(passes) / seconds,
                             .generated_tokens = static_cast<double>(tokens) / seconds};
  }
}

void TopState::Add(v1::GetStatusResponse status, absl::Time now, absl::Time steady) {
  if (away_since_) Say(now, "the server answers again");
  away_since_.reset();
  if (has_status_) {
    if (status.term() != status_.term()) {
      Say(now, absl::StrCat("another engine leads: term ", status_.term(), " -> ", status.term(),
                            ", version ", status.version()));
    }
    CompareGroups(status, now);
    CompareRuns(status, now);
    Measure(status, steady - steady_);
  }
  status_ = std::move(status);
  has_status_ = true;
  time_ = now;
  steady_ = steady;
}

void TopState::AddFailure(const absl::Status& why, absl::Time now) {
  rates_.clear();
  if (away_since_) return;
  away_since_ = now;
  Say(now, absl::StrCat("no answer: ", std::string(why.message())));
}

std::optional<GroupRate> TopState::RateOf(const std::string& group) const {
  const auto found = rates_.find(group);
  if (found == rates_.end()) return std::nullopt;
  return found->second;
}

}  // namespace lathe::cli
