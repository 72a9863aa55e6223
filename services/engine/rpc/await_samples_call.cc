#include "services/engine/rpc/await_samples_call.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
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
  call->Keep();
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
  const uint64_t wait_id = runtime_.completions().Wait(queue_, cursor_, Concluding());
  if (wait_id == 0) return Conclude();
  ConcludeAfter(wait_ms, wait_id);
}

void AwaitSamplesCall::Conclude() {
  const SampleCompletions::Batch batch = runtime_.completions().Take(queue_, cursor_);
  const bool ends = TryEnd([&] {
    response_->set_cursor(batch.cursor);
    for (const SampleCompletion& completion : batch.completions) {
      v1::EndedSample* const sample = response_->add_samples();
      sample->set_request_id(completion.request_id);
      sample->set_failed(completion.failed);
      sample->set_result_bytes(completion.result_bytes);
    }
  });
  if (ends) Close(absl::OkStatus());
}

}  // namespace lathe::engine
