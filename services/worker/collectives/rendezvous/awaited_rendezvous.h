// A rendezvous address that one thread waits for and another thread sets.
#pragma once

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

namespace lathe::worker {

// Thread-safe.
class AwaitedRendezvous {
 public:
  void Set(const RendezvousPoint& rendezvous) {
    absl::MutexLock lock(&mu_);
    rendezvous_ = rendezvous;
  }

  // Wakes all waiting threads.
  void Stop() {
    absl::MutexLock lock(&mu_);
    is_stopped_ = true;
  }

  // Blocks until Set or Stop. Returns Cancelled if Stop came first.
  absl::StatusOr<RendezvousPoint> Await() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &AwaitedRendezvous::IsOver));
    if (rendezvous_.has_value()) return *rendezvous_;
    return absl::CancelledError("the process ends before its peers have attached");
  }

 private:
  bool IsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return rendezvous_.has_value() || is_stopped_;
  }

  absl::Mutex mu_;
  std::optional<RendezvousPoint> rendezvous_ ABSL_GUARDED_BY(mu_);
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::worker
