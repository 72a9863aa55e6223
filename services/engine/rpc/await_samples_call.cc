#include "services/engine/rpc/await_samples_call.h"

#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

absl::Status CheckRange(const char* field, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return Invalid("invalid_field", field,
                 absl::StrFormat("%s is %d, expected 0 to %d", field, value, max));
}

absl::Status Check(const v1::AwaitSamplesRequest& request) {
  constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
  RETURN_IF_ERROR(CheckRange("clone_number", request.clone_number(),
                             kMaxInt / CompletionQueueId::kSeqsPerClone));
  RETURN_IF_ERROR(CheckRange("cursor", request.cursor(), kMaxInt));
  return CheckRange("wait_ms", request.wait_ms(), AwaitSamplesCall::kMaxWaitMs);
}

}  // namespace

grpc::ServerUnaryReactor* AwaitSamplesCall::Start(Runtime& runtime,
                                                  const absl::StatusOr<Caller>& caller,
                                                  const v1::AwaitSamplesRequest& request,
                                                  v1::AwaitSamplesResponse* response) {
  const std::string tenant_id = caller.ok() ? caller->tenant_id : "";
  std::shared_ptr<AwaitSamplesCall> call(new AwaitSamplesCall(
      runtime, {tenant_id, request.sampling_session_id(), request.clone_number()}, request.cursor(),
      response));
  call->self_ = call;
  const absl::Status status = caller.ok() ? Check(request) : caller.status();
  if (!status.ok()) {
    call->End(status);
    return call.get();
  }
  const std::vector<std::string> retrieved(request.retrieved_request_ids().begin(),
                                           request.retrieved_request_ids().end());
  runtime.hub().Release(tenant_id, retrieved);
  call->Begin(request.wait_ms());
  return call.get();
}

void AwaitSamplesCall::Begin(int64_t wait_ms) {
  if (wait_ms == 0) return Conclude();
  const uint64_t wait_id = runtime_.completions().Wait(queue_, cursor_, [weak = weak_from_this()] {
    if (const std::shared_ptr<AwaitSamplesCall> call = weak.lock()) call->Conclude();
  });
  if (wait_id == 0) return Conclude();
  absl::MutexLock lock(&mu_);
  wait_id_ = wait_id;
  if (ended_) return;
  alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(wait_ms),
             [weak = weak_from_this()](bool is_time) {
               const std::shared_ptr<AwaitSamplesCall> call = weak.lock();
               if (call && is_time) call->Conclude();
             });
}

void AwaitSamplesCall::Conclude() {
  const SampleCompletions::Batch batch = runtime_.completions().Take(queue_, cursor_);
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    response_->set_cursor(batch.cursor);
    response_->clear_samples();
    for (const SampleCompletion& completion : batch.completions) {
      v1::EndedSample* const sample = response_->add_samples();
      sample->set_request_id(completion.request_id);
      sample->set_failed(completion.failed);
      sample->set_result_bytes(completion.result_bytes);
    }
  }
  End(absl::OkStatus());
}

void AwaitSamplesCall::End(const absl::Status& status) {
  uint64_t wait_id = 0;
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    wait_id = wait_id_;
  }
  if (wait_id != 0) runtime_.completions().Cancel(queue_, wait_id);
  alarm_.Cancel();
  Finish(ToGrpcStatus(status));
}

void AwaitSamplesCall::OnCancel() { End(absl::CancelledError("the client left")); }

}  // namespace lathe::engine
