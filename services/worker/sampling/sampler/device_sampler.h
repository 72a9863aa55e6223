// SampleTokens on the logits' device: only ids and log-probabilities are copied to the host.
#pragma once

#include <span>

#include "services/worker/kernels/cuda/sample_rows.h"
#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Converts `input` to the parameters that the device kernel needs.
RowInput RowInputOf(const SampleInput& input);

// Takes logits [n, V] fp32 on a GPU. Waits for the device.
TokenSamples SampleTokensOnDevice(const at::Tensor& logits, std::span<const SampleInput> inputs);

}  // namespace lathe::worker
