// Which group of its base model a model lives on.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// A worker has it, or is to.
bool IsToBeOnWorker(State& s, const Model& model);

// What a model asks of its group: of one that somebody works with, more.
int64_t LoadOf(const State& s, const Model& model);
using GroupLoads = std::map<std::string, int64_t>;  // by group; absent: none
GroupLoads LoadsOfGroups(State& s);

// Of those that train `base_model` the one with the least load for each of its ranks; usable ones
// before others, and of both those first that are not drained. nullptr: none has come yet.
Group* LeastLoaded(State& s, const std::string& base_model, const GroupLoads& loads);
// The same as things are now.
Group* GroupForModel(State& s, const std::string& base_model);

// Why what has no group waits: once, at a start.
void TellNoGroup(State& s);

}  // namespace lathe::engine
