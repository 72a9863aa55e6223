// What the engine's probes answer.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Thread-safe.
class Readiness {
 public:
  // Ready from now on; null: no longer. `runtime` must live until the next call.
  void Follow(Runtime* runtime);

  // What IsReady says while there is nothing to follow.
  void Explain(std::string reason);

  // Unavailable until the engine has read its store and serves, and once it stops,
  // and while every group of workers is degraded or refused;
  // ResourceExhausted while its disk is full.
  absl::Status IsReady();
  // DeadlineExceeded when the thread that decides has done nothing for 30 s. Before and after it
  // runs, being able to answer suffices: reading a large store may take long.
  absl::Status IsLive();

 private:
  absl::Mutex mu_;
  Runtime* runtime_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string reason_ ABSL_GUARDED_BY(mu_) = "the engine reads its store";
};

}  // namespace lathe::engine
