// Answers duplicates of requests that the core no longer holds.
#pragma once

#include <functional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/runtime/call_table.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Looks up requests on a separate thread. The store keeps requests longer than the core does, and
// the core must not wait for the store. Thread-safe.
class RequestLookup {
 public:
  // `store` must outlive this object.
  explicit RequestLookup(Store& store);
  ~RequestLookup() { Stop(); }

  // Returns a callback for the core's answer to `submit`. It gives `done` that answer, unless the
  // core no longer holds the request. Then it looks the request up, and `done` runs on this
  // object's thread.
  CallTable::Callback Resolve(const Submit& submit, CallTable::Callback done);
  // Finishes the queued look-ups, then ends the thread. May be called twice.
  void Stop();

 private:
  void LookUp(const Submit& submit, const Answer& from_core, const CallTable::Callback& done);

  Store& store_;
  BoundedQueue<std::function<void()>> queue_;
  NamedThread thread_;
};

}  // namespace lathe::engine
