// DrawTokens on the logits' device: only ids and log-probabilities are copied to the host.
#pragma once

#include <span>

#include "services/worker/kernels/cuda/draw_rows.h"
#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Converts `draw` to the parameters that the device kernel needs.
RowDraw RowDrawOf(const Draw& draw);

// Takes logits [n, V] fp32 on a GPU. Waits for the device.
DrawnTokens DrawTokensOnDevice(const at::Tensor& logits, std::span<const Draw> draws);

}  // namespace lathe::worker
