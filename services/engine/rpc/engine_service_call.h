// Templates for EngineService's methods; private to engine_service_*.cc.
#pragma once

#include <utility>

#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/unary_call.h"

namespace lathe::engine {

template <typename CoreEvent>
EngineService::Reactor* EngineService::Change(
    Context* context, RpcAccess access,
    const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
    std::function<void(const engine::Answer&)> fill) {
  return ChangeCall<CoreEvent>(runtime_, keys_, context, access, make, std::move(fill));
}

}  // namespace lathe::engine
