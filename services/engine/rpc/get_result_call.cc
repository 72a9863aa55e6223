#include "services/engine/rpc/get_result_call.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {

grpc::ServerUnaryReactor* GetResultCall::Start(Runtime& runtime,
                                               const absl::StatusOr<Caller>& caller,
                                               const v1::GetResultRequest& request,
                                               v1::GetResultResponse* response) {
  std::shared_ptr<GetResultCall> call(new GetResultCall(runtime, request, response));
  call->Keep();
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
      tenant_id, request_id_, [conclude = Concluding()](WaitEnd) { conclude(); });
  if (waiting.status().code() == absl::StatusCode::kAlreadyExists) {
    Conclude();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(waiting.status());
  ConcludeAfter(wait_ms, waiting->wait_id);
  return absl::OkStatus();
}

void GetResultCall::Conclude() {
  if (has_ended()) return;
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
  // The result and the timeout may come together. The one that ends the call writes the response.
  if (!TryEnd([&] {
        has_result_ = response.has_result();
        *response_ = std::move(response);
      })) {
    return;
  }
  Close(absl::OkStatus());
}

void GetResultCall::OnWritten() {
  if (acknowledges_ || !has_result_) return;
  runtime_.RecordDelivered(tenant_id_, request_id_);
}

}  // namespace lathe::engine
