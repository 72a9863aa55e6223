// Repetitions of requests that the core does not know any more.
#pragma once

#include <functional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/runtime/call_table.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// The store has requests for longer than the core, which may not wait for it: a thread looks them
// up. Thread-safe.
class ForgottenRequests {
 public:
  // `store` must outlive this.
  explicit ForgottenRequests(Store& store);
  ~ForgottenRequests() { Stop(); }

  // Gives `done` the core's answer to `submit`, or what the store says where the core knows no
  // more. `done` then runs on the thread here.
  CallTable::Callback Resolve(const Submit& submit, CallTable::Callback done);
  // Looks up what was taken, then ends the thread. May be called twice.
  void Stop();

 private:
  void LookUp(const Submit& submit, const Answer& from_core, const CallTable::Callback& done);

  Store& store_;
  BoundedQueue<std::function<void()>> queue_;
  NamedThread thread_;
};

}  // namespace lathe::engine
