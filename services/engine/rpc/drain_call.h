// One Drain call: waits until no request is pending or the time is up.
#pragma once

#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/rpc/waiting_call.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

class DrainCall final : public WaitingCall {
 public:
  // `runtime` must outlive the call. With a timeout of 0 the call waits as long as the client does.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const v1::DrainRequest& request,
                                         v1::DrainResponse* response);

 private:
  DrainCall(Runtime& runtime, v1::DrainResponse* response)
      : runtime_(runtime), response_(response) {}

  // Responds with the requests that are left.
  void Conclude() override;
  void OnAnswer(const Answer& answer);
  void Respond(v1::DrainResponse response);

  Runtime& runtime_;
  v1::DrainResponse* const response_;
};

}  // namespace lathe::engine
