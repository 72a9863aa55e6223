#include "services/worker/executor/device_meter.h"

#include <utility>

#include "libs/common/logging/logging.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

// An error of earlier work may show here first. One that loses the GPU ends the process. After any
// other the work fails by itself.
template <typename Body>
void DeviceMeter::Try(const Body& body) {
  const absl::Status status = Guarded("measurement of device time", [&body] {
    body();
    return absl::OkStatus();
  });
  if (status.ok()) return;
  LogWarn("device time is unknown", {{"error", status.message()}});
  current_.reset();
  queued_.clear();
}

void DeviceMeter::Begin(DeviceUse use) {
  Try([&] {
    current_ = {.use = use, .is_contended = share_.is_contended(), .begin = clock_.SetMark()};
  });
}

void DeviceMeter::End() {
  if (!current_.has_value()) return;
  Try([this] {
    current_->end = clock_.SetMark();
    queued_.push_back(*std::exchange(current_, std::nullopt));
    FinishAllBut(1);
  });
}

void DeviceMeter::Finish() {
  Try([this] { FinishAllBut(0); });
}

void DeviceMeter::FinishAllBut(size_t num_units) {
  while (!queued_.empty() &&
         (queued_.size() > num_units || clock_.HasPassed(queued_.front().end))) {
    clock_.Wait(queued_.front().end);
    Charge(queued_.front());
    queued_.pop_front();
  }
}

void DeviceMeter::Charge(const Unit& unit) {
  const absl::Duration spent = clock_.Between(unit.begin, unit.end);
  (unit.use == DeviceUse::kTraining ? counters_.training_time : counters_.sampling_time) += spent;
  // The uses may have begun to compete while the device worked on a unit without competition.
  if (unit.is_contended) share_.Charge(unit.use, spent);
}

}  // namespace lathe::worker
