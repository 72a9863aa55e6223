// DrawTokens where the logits lie: only ids and log-probabilities come to the host.
#pragma once

#include <span>

#include "services/worker/aten.h"
#include "services/worker/kernels/cuda/draw_rows.h"
#include "services/worker/sampling/sampler.h"

namespace lathe::worker {

// What the device needs to know of one draw.
RowDraw RowDrawOf(const Draw& draw);

// logits [n, V] fp32 on a GPU. Waits for the device.
DrawnTokens DrawTokensOnDevice(const at::Tensor& logits, std::span<const Draw> draws);

}  // namespace lathe::worker
