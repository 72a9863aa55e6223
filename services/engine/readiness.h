// Responses of the engine's health probes.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/leadership/leadership.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// State of the engine for its readiness and liveness probes.
// Thread-safe.
class Readiness {
 public:
  // Makes the engine ready; null makes it unready. `runtime` must live until the next call.
  void Follow(Runtime* runtime);

  // Says that this process stands by, with `leadership`, which must live until the next call. Null:
  // it no longer does.
  void FollowStandby(const Leadership* leadership);

  // Sets the reason that IsReady returns while no runtime is followed.
  void Explain(std::string reason);

  // Returns Unavailable until the engine has read its store and serves, once it stops, and while
  // every worker group is degraded or refused. Returns ResourceExhausted while its disk is full.
  absl::Status IsReady();
  // Like IsReady, but returns OK too for a standby that can read the lease, and so take it.
  absl::Status IsServing();
  // Returns OK from the moment at which the engine first served or stood by.
  absl::Status HasStarted();
  // Returns DeadlineExceeded if the core thread has been idle for 30 s. While no runtime is
  // followed it returns OK, because reading a large store may take long.
  absl::Status IsLive();

 private:
  absl::Status IsReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Runtime* runtime_ ABSL_GUARDED_BY(mu_) = nullptr;
  const Leadership* standby_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool has_started_ ABSL_GUARDED_BY(mu_) = false;
  std::string reason_ ABSL_GUARDED_BY(mu_) = "the engine reads its store";
};

}  // namespace lathe::engine
