// Which group of its base model a model lives on.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Of those that train `base_model`, a usable one before others, the one that has the fewest models;
// nullptr: none has come yet.
Group* GroupForModel(State& s, const std::string& base_model);

// What was accepted waits for a group that does not exist: tells its callers.
void TellNoGroup(State& s);

// On each Tick. Models whose group will not go on with them are rebuilt in another one, as after
// the death of a worker. No worker has their state then: that of a group that was lost is gone, or
// is dropped when it comes back.
void MoveModels(State& s);

}  // namespace lathe::engine
