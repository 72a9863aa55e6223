// Calls of rpc/ that wait for an Answer of the core.
#pragma once

#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// Thread-safe. A callback runs once, without locks, on the core's thread (or on the thread that
// calls FailAll), and must not block.
class CallTable {
 public:
  using Callback = std::function<void(const Answer&)>;

  CallId Add(Callback callback);
  // An unknown call is fine: it was failed before.
  void Finish(const Answer& answer);
  // Answers every waiting call with `error`.
  void FailAll(const ErrorInfo& error);

 private:
  absl::Mutex mu_;
  CallId next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<CallId, Callback> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
