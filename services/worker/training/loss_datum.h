// Converts requests of ops/ to the input of loss programs. Free of torch.
#pragma once

#include <vector>

#include "libs/common/losses/evaluate_loss.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// Returns a view: `datum` must outlive it.
inline LossDatum LossDatumOf(const TrainDatum& datum) {
  return {.num_entries = static_cast<int64_t>(datum.targets.size()),
          .num_targets = datum.num_targets,
          .weights = datum.weights,
          .logprobs = datum.logprobs,
          .advantages = datum.advantages,
          .clip_low = datum.clip_low,
          .clip_high = datum.clip_high,
          .mask = datum.mask,
          .reference_logprobs = datum.reference_logprobs,
          .scale = datum.loss_scale};
}

// Sets the loss_scale of each datum according to the request's normalization.
inline void ScaleLosses(TrainRequest& request) {
  std::vector<LossDatum> data;
  for (const TrainDatum& datum : request.data) data.push_back(LossDatumOf(datum));
  const std::vector<double> scales = LossScales(request.loss, data);
  for (size_t i = 0; i < scales.size(); ++i) request.data[i].loss_scale = scales[i];
}

}  // namespace lathe::worker
