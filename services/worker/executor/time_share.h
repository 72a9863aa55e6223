// How training and sampling divide the device.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace lathe::worker {

enum class DeviceUse { kNothing, kTraining, kSampling };

// Gives each use its share of device time while both have work, and all of it to one that is alone.
// Time spent alone is not owed back: whoever arrives starts level with the other.
class TimeShare {
 public:
  // `sampling_share` in (0, 1).
  explicit TimeShare(double sampling_share) : sampling_share_(sampling_share) {}

  // Whose unit comes next; where both have one, `preferred`'s if it is set.
  DeviceUse Pick(bool has_training, bool has_sampling,
                 std::optional<DeviceUse> preferred = std::nullopt);

  // Whose it is if both have one.
  DeviceUse Preferred() const;

  // What the picked unit took.
  void Charge(DeviceUse use, absl::Duration spent);

 private:
  double sampling_share_;
  // Device time divided by the share, since both last began to want the device.
  absl::Duration training_used_ = absl::ZeroDuration();
  absl::Duration sampling_used_ = absl::ZeroDuration();
  bool contended_ = false;
};

}  // namespace lathe::worker
