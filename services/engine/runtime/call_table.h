// Table of the calls from rpc/ that wait for an Answer of the core.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/tracing/span_context.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// Thread-safe. Each callback runs once, without locks, and must not block. It runs on the core's
// thread, or on the thread that calls FailAll or FailExpired.
class CallTable {
 public:
  using Callback = std::function<void(const Answer&)>;
  using Time = std::chrono::steady_clock::time_point;

  // Adds a call. FailExpired ends it after `deadline`. `may_repeat`: a repetition finds what the
  // call has changed. `span` is that of the request which the call submits.
  CallId Add(Callback callback, Time deadline = Time::max(), bool may_repeat = true,
             const SpanContext& span = {});
  // Returns the span of a waiting call; no context: it has none.
  SpanContext SpanOf(CallId call);
  // Runs the callback of the answer's call. Ignores an unknown call, which has failed before.
  void Finish(const Answer& answer);
  // The next two answer with `error`, and say whether the same request may be sent again. What a
  // failed call changes may still become durable. If it may not be repeated, the error is
  // DeadlineExceeded `outcome_unknown`, which clients do not retry by themselves.
  // Answers every waiting call.
  void FailAll(const ErrorInfo& error);
  // Answers the waiting calls whose deadline is before `now`.
  void FailExpired(Time now, const ErrorInfo& error);

 private:
  struct Waiting {
    Callback callback;
    Time deadline;
    bool may_repeat = true;
    SpanContext span;
  };

  static void Fail(const std::map<CallId, Waiting>& waiting, const ErrorInfo& error);

  absl::Mutex mu_;
  CallId next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<CallId, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
