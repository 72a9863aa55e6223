#include "services/worker/executor/planning/time_share.h"

namespace lathe::worker {

DeviceUse TimeShare::Preferred() const {
  // Uses that begin to compete start level.
  const bool is_sampling = !contended_ || sampling_used_ <= training_used_;
  return is_sampling ? DeviceUse::kSampling : DeviceUse::kTraining;
}

DeviceUse TimeShare::Pick(bool has_training, bool has_sampling,
                          std::optional<DeviceUse> preferred) {
  const bool contended = has_training && has_sampling;
  if (contended && !contended_) training_used_ = sampling_used_ = absl::ZeroDuration();
  contended_ = contended;
  if (contended) return preferred.value_or(Preferred());
  if (has_training) return DeviceUse::kTraining;
  return has_sampling ? DeviceUse::kSampling : DeviceUse::kNothing;
}

void TimeShare::Charge(DeviceUse use, absl::Duration spent) {
  if (use == DeviceUse::kSampling) sampling_used_ += spent / sampling_share_;
  if (use == DeviceUse::kTraining) training_used_ += spent / (1 - sampling_share_);
}

}  // namespace lathe::worker
