// Which base models are served. A model is known for ever once a group was ready with it; it is
// served as long as a group has it, also while that group's worker is away.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Why nothing new may name `base_model`; nullopt when it is served.
std::optional<ErrorInfo> UnknownBaseModel(const State& s, const std::string& base_model);

// A group has another base model than before: what waits for one that nobody serves now ends.
void FailUnserved(State& s);

}  // namespace lathe::engine
