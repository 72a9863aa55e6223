// Placement: the group, among those of its base model, on which a model lives.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/engine/core/state/model_facts.h"
#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Returns true if models of this base model can live on the group.
bool Serves(const Group& group, const Model& model);
// Returns true if the group will probably not serve models of this base model again.
bool IsGroupLost(const State& s, const Group& group, const std::string& base_model);
bool IsGroupLost(const State& s, const Model& model);

using GroupLoads = std::map<std::string, int64_t>;  // by group; absent: none
GroupLoads LoadsOfGroups(State& s);

// Returns the group that trains `base_model` with the least load per rank. Usable groups come
// first, then groups that are not drained. nullptr: no such group is known yet.
Group* LeastLoaded(State& s, const std::string& base_model, const GroupLoads& loads);
// Calls LeastLoaded with the current loads.
Group* GroupForModel(State& s, const std::string& base_model);

// Publishes, once at a start, why requests without a group wait.
void NotifyNoGroup(State& s);

}  // namespace lathe::engine
