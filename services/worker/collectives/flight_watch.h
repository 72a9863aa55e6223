// Deadlines of collectives that a device runs behind the host.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/flight_recorder.h"

namespace lathe::worker {

// A point in the work that is queued on a device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Returns true if the device has passed this point; false also while it is not queued. Any
  // thread.
  virtual absl::StatusOr<bool> IsPassed() const = 0;
};

// The collectives and replays that one communicator has queued on its device. The deadline of each
// runs from when the device reaches it, because the other ranks do not cause the work before it.
// Thread-safe.
class FlightWatch {
 public:
  using OnFailure = std::function<void(const CollectiveOperation&, const absl::Status&)>;

  // `recorder` must outlive this object.
  explicit FlightWatch(FlightRecorder& recorder) : recorder_(recorder) {}

  // Watches what the device does between two points. `end` may be queued later.
  void Add(const CollectiveOperation& operation, std::shared_ptr<const DeviceEvent> begin,
           std::shared_ptr<const DeviceEvent> end);

  // Body of the watching thread. Every 20 ms it calls `check`, which returns the transport's own
  // errors, and Look. Returns after Stop. Returns too after the first error, for which it calls
  // `on_failure` with the oldest call that has not ended.
  void Run(const std::function<absl::Status()>& check, const OnFailure& on_failure);
  void Stop();

  // Forgets the calls that have ended. Returns the device's error, or DeadlineExceeded if a call
  // has not ended in its time. `now` is SteadyNow().
  absl::Status Look(absl::Time now);

 private:
  // Holds no tensors, which belong to the caller, as does the operation's name.
  struct Flight {
    CollectiveOperation operation{.kind = CollectiveKind::kBarrier};
    std::string name = "none";
    std::shared_ptr<const DeviceEvent> begin, end;
    // Time at which the device was seen to have reached the call.
    std::optional<absl::Time> started;
  };

  absl::StatusOr<bool> HasEndedLocked(Flight& flight, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Flight Oldest() const;

  FlightRecorder& recorder_;
  mutable absl::Mutex mu_;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Calls that have not ended, oldest first.
  std::list<Flight> flights_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
