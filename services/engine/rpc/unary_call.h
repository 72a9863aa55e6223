// The shape of unary rpcs that change something; of those that read it is AnswerCall.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/caller.h"
#include "services/engine/runtime/result_encoder.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Authenticates; `make` gives the core's event or the refusal; `fill` puts the core's answer into
// the response before the call ends.
template <typename CoreEvent>
grpc::ServerUnaryReactor* ChangeCall(
    Runtime& runtime, const KeyRing& keys, grpc::CallbackServerContext* context, RpcAccess access,
    const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
    std::function<void(const Answer&)> fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  absl::StatusOr<CoreEvent> event = caller.ok() ? make(*caller) : caller.status();
  if (!event.ok()) {
    reactor->Finish(ToGrpcStatus(event.status()));
    return reactor;
  }
  runtime.Call(*std::move(event), [reactor, fill = std::move(fill)](const Answer& answer) {
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
