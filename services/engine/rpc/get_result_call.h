// One GetResult call: waits for a result until its time is up or the client leaves.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/waiting_call.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

class GetResultCall final : public WaitingCall {
 public:
  // `runtime` must outlive the call.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const absl::StatusOr<Caller>& caller,
                                         const v1::GetResultRequest& request,
                                         v1::GetResultResponse* response);

 private:
  GetResultCall(Runtime& runtime, const v1::GetResultRequest& request,
                v1::GetResultResponse* response)
      : runtime_(runtime),
        request_id_(request.request_id()),
        acknowledges_(request.acknowledges()),
        response_(response) {}

  absl::Status Begin(const std::string& tenant_id, int64_t wait_ms);
  // Responds with the result, or as pending if there is none.
  void Conclude() override;
  void StopWaiting(uint64_t wait_id) override { runtime_.hub().Cancel(request_id_, wait_id); }
  void OnWritten() override;

  Runtime& runtime_;
  const std::string request_id_;
  const bool acknowledges_;
  std::string tenant_id_;
  bool has_result_ = false;  // set while the call ends
  v1::GetResultResponse* const response_;
};

}  // namespace lathe::engine
