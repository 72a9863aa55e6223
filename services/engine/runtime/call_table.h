// Table of the calls from rpc/ that wait for an Answer of the core.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// Thread-safe. Each callback runs once, without locks, and must not block. It runs on the core's
// thread, or on the thread that calls FailAll or FailExpired.
class CallTable {
 public:
  using Callback = std::function<void(const Answer&)>;
  using Time = std::chrono::steady_clock::time_point;

  // Adds a call. FailExpired ends it after `deadline`.
  CallId Add(Callback callback, Time deadline = Time::max());
  // Runs the callback of the answer's call. Ignores an unknown call, which has failed before.
  void Finish(const Answer& answer);
  // Answers every waiting call with `error`.
  void FailAll(const ErrorInfo& error);
  // Answers the waiting calls whose deadline is before `now` with `error`.
  void FailExpired(Time now, const ErrorInfo& error);

 private:
  struct Waiting {
    Callback callback;
    Time deadline;
  };

  static void Fail(const std::map<CallId, Waiting>& waiting, const ErrorInfo& error);

  absl::Mutex mu_;
  CallId next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<CallId, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
