// Responses of the engine's health probes.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// State of the engine for its readiness and liveness probes.
// Thread-safe.
class Readiness {
 public:
  // Makes the engine ready; null makes it unready. `runtime` must live until the next call.
  void Follow(Runtime* runtime);

  // Sets the reason that IsReady returns while no runtime is followed.
  void Explain(std::string reason);

  // Returns Unavailable until the engine has read its store and serves, once it stops, and while
  // every worker group is degraded or refused. Returns ResourceExhausted while its disk is full.
  absl::Status IsReady();
  // Returns DeadlineExceeded if the core thread has been idle for 30 s. While no runtime is
  // followed it returns OK, because reading a large store may take long.
  absl::Status IsLive();

 private:
  absl::Mutex mu_;
  Runtime* runtime_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string reason_ ABSL_GUARDED_BY(mu_) = "the engine reads its store";
};

}  // namespace lathe::engine
