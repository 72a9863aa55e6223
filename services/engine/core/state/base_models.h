// The base models that are served. A base model stays known for ever after a group became ready
// with it. It is served while a group has it, even while the worker of that group is away.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Returns why new requests may not name `base_model`; nullopt if it is served.
std::optional<ErrorInfo> UnknownBaseModel(const State& s, const std::string& base_model);

}  // namespace lathe::engine
