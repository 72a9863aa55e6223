// Divides the device between training and sampling.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace lathe::worker {

enum class DeviceUse { kNothing, kTraining, kSampling };

// Gives each use its share of device time while both have work, and all of it to a use without
// competition. Time used without competition is not owed back: both uses start level when they
// begin to compete.
class TimeShare {
 public:
  // `sampling_share` in (0, 1).
  explicit TimeShare(double sampling_share) : sampling_share_(sampling_share) {}

  // Returns the use that gets the next unit. If both uses have work, `preferred` gets it if set.
  DeviceUse Pick(bool has_training, bool has_sampling,
                 std::optional<DeviceUse> preferred = std::nullopt) {
    const bool contended = has_training && has_sampling;
    if (contended && !contended_) training_used_ = sampling_used_ = absl::ZeroDuration();
    contended_ = contended;
    if (contended) return preferred.value_or(Preferred());
    if (has_training) return DeviceUse::kTraining;
    return has_sampling ? DeviceUse::kSampling : DeviceUse::kNothing;
  }

  bool is_contended() const { return contended_; }

  // Returns the use that gets the next unit if both have work.
  DeviceUse Preferred() const {
    // Uses that begin to compete start level.
    const bool is_sampling = !contended_ || sampling_used_ <= training_used_;
    return is_sampling ? DeviceUse::kSampling : DeviceUse::kTraining;
  }

  // Adds the time that a unit took.
  void Charge(DeviceUse use, absl::Duration spent) {
    if (use == DeviceUse::kSampling) sampling_used_ += spent / sampling_share_;
    if (use == DeviceUse::kTraining) training_used_ += spent / (1 - sampling_share_);
  }

 private:
  double sampling_share_;
  // Device time divided by the share, since the uses last began to compete.
  absl::Duration training_used_ = absl::ZeroDuration();
  absl::Duration sampling_used_ = absl::ZeroDuration();
  bool contended_ = false;
};

}  // namespace lathe::worker
