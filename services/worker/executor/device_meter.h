// Charges units of work with the time that they take on the device.
#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "services/worker/executor/device_clock.h"
#include "services/worker/executor/planning/time_share.h"
#include "services/worker/ops/counters.h"

namespace lathe::worker {

// Measures one unit at a time, and lets the host get ahead of the device by two units at most. A
// unit is charged when the device has done it. `clock`, `share` and `counters` must outlive it.
class DeviceMeter {
 public:
  DeviceMeter(DeviceClock& clock, TimeShare& share, CoreCounters& counters)
      : clock_(clock), share_(share), counters_(counters) {}

  // The work that is queued from now on is a unit of `use`. One that has not ended is forgotten.
  void Begin(DeviceUse use);
  // Ends the unit that has begun. Blocks until the device has done the unit before it.
  void End();
  // Blocks until the device has done all units, and charges them.
  void Finish();

 private:
  struct Unit {
    DeviceUse use = DeviceUse::kNothing;
    bool is_contended = false;  // another use had work when it began
    DeviceClock::Mark begin = 0;
    DeviceClock::Mark end = 0;
  };

  template <typename Body>
  void Try(const Body& body);
  void FinishAllBut(size_t num_units);
  void Charge(const Unit& unit);

  DeviceClock& clock_;
  TimeShare& share_;
  CoreCounters& counters_;
  std::optional<Unit> current_;
  std::deque<Unit> queued_;  // units that the device has not done, oldest first
};

}  // namespace lathe::worker
