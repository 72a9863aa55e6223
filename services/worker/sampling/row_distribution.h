// What makes probabilities of a row of logits, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "services/worker/kernels/cpu/draw_kernel.h"

namespace lathe::worker {

// softmax(logits / temperature); of temperature 0, whose draws are all the largest logit, that
// of 1.
struct RowDistribution {
  float inverse_temperature = 1;
  float max = 0;   // of the logits
  double sum = 0;  // of exp((logit - max) / temperature)

  // Not so when a logit is NaN or +inf, or none is more than -inf.
  bool is_finite() const { return std::isfinite(sum) && std::isfinite(max); }

  // Of a token with this logit. At temperature 1 what TargetLogprobs gives, to the last bit.
  float Logprob(float logit) const {
    return static_cast<float>(static_cast<double>(logit - max) * inverse_temperature -
                              std::log(sum));
  }
};

// Of temperature 0 it is 1.
inline float InverseTemperature(double temperature) {
  if (temperature == 0) return 1;
  // Infinity would make NaN of the largest logit.
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(1.0 / temperature, kMost));
}

// weights [V] are proportional to the probabilities, the largest is 1.
inline RowDistribution DistributionOf(std::span<const float> logits, double temperature,
                                      std::span<float> weights) {
  RowDistribution row{.inverse_temperature = InverseTemperature(temperature), .max = MaxOf(logits)};
  row.sum = Weigh(logits, row.max, row.inverse_temperature, weights.data());
  return row;
}

}  // namespace lathe::worker
