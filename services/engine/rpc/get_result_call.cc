#include "services/engine/rpc/get_result_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

grpc::ServerUnaryReactor* GetResultCall::Start(Runtime& runtime,
                                               const absl::StatusOr<Caller>& caller,
                                               const v1::GetResultRequest& request,
                                               v1::GetResultResponse* response) {
  std::shared_ptr<GetResultCall> call(new GetResultCall(runtime, request.request_id(), response));
  call->self_ = call;
  const absl::Status status =
      caller.ok() ? call->Begin(caller->tenant_id, request.wait_ms()) : caller.status();
  if (!status.ok()) call->End(status);
  return call.get();
}

absl::Status GetResultCall::Begin(const std::string& tenant_id, int64_t wait_ms) {
  if (wait_ms < 0 || wait_ms > kMaxWaitMs) {
    return Invalid("invalid_field", "wait_ms",
                   absl::StrFormat("wait_ms is %d, expected 0 to %d", wait_ms, kMaxWaitMs));
  }
  tenant_id_ = tenant_id;
  if (wait_ms == 0) {
    Conclude();
    return absl::OkStatus();
  }
  const absl::StatusOr<ResultHub::Waiting> waiting = runtime_.hub().Wait(
      tenant_id, request_id_, [weak = weak_from_this()](const ResultUpdate& update) {
        // The call stays open on a queue state change; the next poll reports it.
        const std::shared_ptr<GetResultCall> call = weak.lock();
        if (call && (update.done || update.released)) call->Conclude();
      });
  if (waiting.status().code() == absl::StatusCode::kAlreadyExists) {
    Conclude();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(waiting.status());
  absl::MutexLock lock(&mu_);
  wait_id_ = waiting->wait_id;
  if (ended_) return absl::OkStatus();
  alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(wait_ms),
             [weak = weak_from_this()](bool is_time) {
               const std::shared_ptr<GetResultCall> call = weak.lock();
               if (call && is_time) call->Conclude();
             });
  return absl::OkStatus();
}

void GetResultCall::Conclude() {
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
  }
  const absl::StatusOr<SharedBytes> bytes = runtime_.hub().Find(tenant_id_, request_id_);
  if (!bytes.ok()) return End(bytes.status());
  v1::GetResultResponse response;
  if (*bytes != nullptr) {
    if (!response.mutable_result()->ParseFromString(**bytes)) {
      return End(absl::DataLossError("a stored result cannot be read"));
    }
  } else {
    const QueueStatus queue = runtime_.QueueOf(request_id_);
    response.set_queue_state(queue.paused ? v1::QUEUE_STATE_PAUSED_CAPACITY
                                          : v1::QUEUE_STATE_ACTIVE);
    response.set_queue_state_reason(queue.reason);
  }
  {
    // The result and the timeout may come together. The one that ends the call writes the response.
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    *response_ = std::move(response);
  }
  if (*bytes != nullptr && runtime_.hub().MarkDelivered(request_id_)) {
    runtime_.Post(Delivered{request_id_});
  }
  Close(absl::OkStatus());
}

void GetResultCall::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  Close(status);
}

void GetResultCall::Close(const absl::Status& status) {
  uint64_t wait_id = 0;
  {
    absl::MutexLock lock(&mu_);
    wait_id = wait_id_;
  }
  if (wait_id != 0) runtime_.hub().Cancel(request_id_, wait_id);
  alarm_.Cancel();
  Finish(ToGrpcStatus(status));
}

void GetResultCall::OnCancel() { End(absl::CancelledError("the client left")); }

}  // namespace lathe::engine
