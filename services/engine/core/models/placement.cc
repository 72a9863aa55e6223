#include "services/engine/core/models/placement.h"

#include <tuple>

namespace lathe::engine {

bool Serves(const Group& group, const Model& model) {
  return group.row.base_model == model.row.base_model && group.can_train();
}

bool IsGroupLost(const State& s, const Group& group, const std::string& base_model) {
  if (group.row.base_model != base_model || !group.can_train()) return true;
  const int64_t limit = s.options.group_lost_timeout;
  const bool is_gone = limit > 0 && group.row.process_id.empty();
  return is_gone && s.now - group.last_usable_at > limit;
}

bool IsGroupLost(const State& s, const Model& model) {
  const Group* const group = Find(s.groups, model.row.group);
  return group == nullptr || IsGroupLost(s, *group, model.row.base_model);
}

GroupLoads LoadsOfGroups(State& s) {
  GroupLoads loads;
  for (const auto& [place, models] : IndexOf(s).at) {
    if (models.load > 0) loads[place.first] += models.load;
  }
  return loads;
}

Group* LeastLoaded(State& s, const std::string& base_model, const GroupLoads& loads) {
  const auto rank = [&](const Group& group) {
    constexpr int64_t kScale = 1000;  // keeps loads of fewer models than ranks distinct
    const auto load = loads.find(group.row.group);
    const int64_t scaled = load == loads.end() ? 0 : load->second * kScale / group.mesh.world();
    return std::tuple(!group.usable(), group.row.is_draining, scaled);
  };
  Group* best = nullptr;
  for (auto& [name, group] : s.groups) {
    if (group.row.base_model != base_model || !group.can_train()) continue;
    if (best == nullptr || rank(group) < rank(*best)) best = &group;
  }
  return best;
}

Group* GroupForModel(State& s, const std::string& base_model) {
  return LeastLoaded(s, base_model, LoadsOfGroups(s));
}

void NotifyNoGroup(State& s) {
  s.fx.After(NotifyQueueState{
      "", /*paused=*/true, "waiting for a worker group of the base model with the required role"});
}

}  // namespace lathe::engine
