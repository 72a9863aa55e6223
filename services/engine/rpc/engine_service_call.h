// The shapes of EngineService's methods; private to engine_service_*.cc.
#pragma once

#include <utility>

#include "libs/common/rpc/status.h"
#include "services/engine/rpc/caller.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {

template <typename CoreEvent>
EngineService::Reactor* EngineService::Change(
    Context* context, RpcAccess access,
    const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
    std::function<void(const engine::Answer&)> fill) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys_, *context, access);
  if (!caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  absl::StatusOr<CoreEvent> event = make(*caller);
  if (!event.ok()) {
    reactor->Finish(ToGrpcStatus(event.status()));
    return reactor;
  }
  runtime_.Call(*std::move(event), [reactor, fill = std::move(fill)](const engine::Answer& answer) {
    if (answer.error) {
      reactor->Finish(ToGrpcStatus(ToStatus(*answer.error)));
      return;
    }
    fill(answer);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace lathe::engine
