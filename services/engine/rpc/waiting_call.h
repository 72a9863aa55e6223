// A unary call that waits until its response is known, its time is over, or its client leaves.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lathe::engine {

// Ends exactly once, on any thread. Keeps itself alive until gRPC is done with it.
class WaitingCall : public grpc::ServerUnaryReactor,
                    public std::enable_shared_from_this<WaitingCall> {
 public:
  // Upper bound of a client's wait_ms.
  static constexpr int64_t kMaxWaitMs = 40'000;

  void OnCancel() final;
  void OnDone() final;

 protected:
  WaitingCall() = default;

  // Called once, before the call can end.
  void Keep() { self_ = shared_from_this(); }
  // Ends the call with the response that it can give now.
  virtual void Conclude() = 0;
  // Returns a function that calls Conclude if the call is still alive.
  std::function<void()> Concluding();
  // Calls Conclude after `wait_ms`, unless the call ends earlier. When it ends, StopWaiting gets
  // `wait_id`, unless that is 0.
  void ConcludeAfter(int64_t wait_ms, uint64_t wait_id = 0);
  virtual void StopWaiting(uint64_t /*wait_id*/) {}
  // Called once the response was written to the client, unless the client left before.
  virtual void OnWritten() {}

  // Returns false if the call has ended. Else runs `respond`, which writes the response, and marks
  // the call as ended. Close must follow.
  template <typename Respond>
  bool TryEnd(const Respond& respond) {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return false;
    respond();
    return true;
  }
  bool has_ended() {
    absl::MutexLock lock(&mu_);
    return ended_;
  }
  void Close(const absl::Status& status);
  // Ends the call without a response of its own, unless it has ended.
  void End(const absl::Status& status);

 private:
  std::shared_ptr<WaitingCall> self_;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool was_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t wait_id_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::Alarm alarm_;
};

}  // namespace lathe::engine
