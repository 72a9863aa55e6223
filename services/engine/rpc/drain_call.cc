#include "services/engine/rpc/drain_call.h"

#include <chrono>
#include <utility>

#include "libs/common/rpc/status.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

v1::DrainResponse ToProto(const Answer& answer) {
  v1::DrainResponse response;
  for (const std::string& id : answer.unsaved_model_ids) response.add_unsaved_model_ids(id);
  response.set_pending_requests(answer.pending_requests);
  return response;
}

}  // namespace

grpc::ServerUnaryReactor* DrainCall::Start(Runtime& runtime, const v1::DrainRequest& request,
                                           v1::DrainResponse* response) {
  std::shared_ptr<DrainCall> call(new DrainCall(runtime, response));
  call->self_ = call;
  std::weak_ptr<DrainCall> weak = call;
  if (request.timeout_ms() > 0) {
    call->alarm_.Set(
        std::chrono::system_clock::now() + std::chrono::milliseconds(request.timeout_ms()),
        [weak](bool is_time) {
          const std::shared_ptr<DrainCall> alive = weak.lock();
          if (alive && is_time) alive->Conclude(DescribeLeftover(alive->runtime_));
        });
  }
  runtime.Call(Drain{}, [weak](const Answer& answer) {
    const std::shared_ptr<DrainCall> alive = weak.lock();
    if (!alive) return;
    if (answer.error) return alive->End(ToGrpcStatus(ToStatus(*answer.error)));
    alive->Conclude(ToProto(answer));
  });
  return call.get();
}

void DrainCall::Conclude(v1::DrainResponse response) {
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    *response_ = std::move(response);
  }
  End(grpc::Status::OK);
}

void DrainCall::End(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  alarm_.Cancel();
  Finish(status);
}

}  // namespace lathe::engine
