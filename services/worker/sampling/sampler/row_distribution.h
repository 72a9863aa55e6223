// Probabilities of a row of logits, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"

namespace lathe::worker {

// softmax(logits / temperature). Temperature 0 samples greedily; its distribution is that of
// temperature 1.
struct RowDistribution {
  float inverse_temperature = 1;
  float max = 0;   // largest logit
  double sum = 0;  // of exp((logit - max) / temperature)

  // False if a logit is NaN or +inf, or all are -inf.
  bool is_finite() const { return std::isfinite(sum) && std::isfinite(max); }

  // Log-probability of a token with this logit. At temperature 1 it equals TargetLogprobs to the
  // last bit.
  float Logprob(float logit) const {
    return static_cast<float>(static_cast<double>(logit - max) * inverse_temperature -
                              std::log(sum));
  }
};

// 1 / temperature, or 1 for temperature 0.
inline float InverseTemperature(double temperature) {
  if (temperature == 0) return 1;
  // An infinite factor would turn the largest logit, shifted to 0, into NaN.
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(1.0 / temperature, kMost));
}

// Fills weights [V], proportional to the probabilities; the largest is 1.
inline RowDistribution DistributionOf(std::span<const float> logits, double temperature,
                                      std::span<float> weights) {
  RowDistribution row{.inverse_temperature = InverseTemperature(temperature), .max = MaxOf(logits)};
  row.sum = Weigh(logits, row.max, row.inverse_temperature, weights.data());
  return row;
}

}  // namespace lathe::worker
