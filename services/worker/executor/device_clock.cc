#include "services/worker/executor/device_clock.h"

#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lathe::worker {
namespace {

// Uses torch's events, which need no headers of CUDA.
class EventDeviceClock : public DeviceClock {
 public:
  explicit EventDeviceClock(at::Device device) : device_(device), streams_(device.type()) {
    // These events keep the time, unlike torch's usual ones.
    for (int64_t i = 0; i < kMostMarks; ++i) {
      events_.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    }
  }

  Mark SetMark() override {
    EventOf(next_).record(streams_.getStream(device_));
    return next_++;
  }
  bool HasPassed(Mark mark) override { return EventOf(mark).query(); }
  void Wait(Mark mark) override { EventOf(mark).synchronize(); }
  absl::Duration Between(Mark begin, Mark end) override {
    return absl::Milliseconds(EventOf(begin).elapsedTime(EventOf(end)));
  }

 private:
  c10::Event& EventOf(Mark mark) { return events_[mark % kMostMarks]; }

  const at::Device device_;
  const c10::impl::VirtualGuardImpl streams_;
  std::vector<c10::Event> events_;
  Mark next_ = 0;
};

}  // namespace

std::unique_ptr<DeviceClock> MakeDeviceClock(at::Device device) {
  if (device.is_cpu()) return std::make_unique<HostDeviceClock>();
  return std::make_unique<EventDeviceClock>(device);
}

}  // namespace lathe::worker
