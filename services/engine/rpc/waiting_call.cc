#include "services/engine/rpc/waiting_call.h"

#include <chrono>

#include "libs/common/rpc/status.h"

namespace lathe::engine {

std::function<void()> WaitingCall::Concluding() {
  return [weak = weak_from_this()] {
    if (const std::shared_ptr<WaitingCall> call = weak.lock()) call->Conclude();
  };
}

void WaitingCall::ConcludeAfter(int64_t wait_ms, uint64_t wait_id) {
  absl::MutexLock lock(&mu_);
  wait_id_ = wait_id;
  if (ended_) return;
  alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(wait_ms),
             [conclude = Concluding()](bool is_time) {
               if (is_time) conclude();
             });
}

void WaitingCall::OnCancel() {
  {
    absl::MutexLock lock(&mu_);
    was_cancelled_ = true;
  }
  End(absl::CancelledError("the client left"));
}

void WaitingCall::OnDone() {
  bool was_cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    was_cancelled = was_cancelled_;
  }
  if (!was_cancelled) OnWritten();
  self_.reset();
}

void WaitingCall::End(const absl::Status& status) {
  if (TryEnd([] {})) Close(status);
}

void WaitingCall::Close(const absl::Status& status) {
  uint64_t wait_id = 0;
  {
    absl::MutexLock lock(&mu_);
    wait_id = wait_id_;
  }
  if (wait_id != 0) StopWaiting(wait_id);
  alarm_.Cancel();
  Finish(ToGrpcStatus(status));
}

}  // namespace lathe::engine
