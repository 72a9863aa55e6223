#include "services/worker/sampling/sampler/sampler.h"

#include <algorithm>
#include <limits>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/sampling/sampler/device_sampler.h"
#include "services/worker/sampling/sampler/row_distribution.h"
#include "services/worker/sampling/sampler/top_filter.h"
#include "services/worker/torch/gpu.h"

namespace lathe::worker {
namespace {

struct Sampled {
  int64_t token = 0;
  float logprob = std::numeric_limits<float>::quiet_NaN();
};

// Appends a row with the most likely tokens to `top`.
void AppendTop(std::span<const float> logits, const RowDistribution& row, TopkLogprobs& top) {
  const auto begin = static_cast<size_t>(top.length++ * top.k);
  top.token_ids.resize(begin + top.k, kNoTopToken);
  top.logprobs.resize(begin + top.k, kNoTopLogprob);
  if (!row.is_finite()) return;
  const auto num_tokens = std::min(static_cast<size_t>(top.k), logits.size());
  const std::span<int32_t> tokens(top.token_ids.data() + begin, num_tokens);
  TopOf(logits, tokens);
  for (size_t i = 0; i < num_tokens; ++i) {
    top.logprobs[begin + i] = row.Logprob(logits[tokens[i]]);
  }
}

// `weights` is scratch space of one number per logit.
Sampled SampleRow(std::span<const float> logits, const SampleInput& input,
                  std::span<float> weights) {
  const SamplingParams& params = *input.params;
  const RowDistribution row = DistributionOf(logits, params.temperature, weights);
  if (input.top != nullptr) AppendTop(logits, row, *input.top);
  if (!row.is_finite()) return {};
  const SampleKey key = {.seed = params.seed,
                         .sample_index = static_cast<uint32_t>(input.sample_index),
                         .position = static_cast<uint32_t>(input.position)};
  Sampled sampled;
  if (params.temperature == 0) {
    sampled.token = FirstOf(logits, row.max);
  } else if (HasTopFilter(params)) {
    sampled.token = GumbelMaxAmong(FilterTop(weights, row.sum, params), weights.data(), key);
  } else {
    sampled.token = GumbelMax(weights, key).token;
  }
  sampled.logprob = row.Logprob(logits[sampled.token]);
  return sampled;
}

}  // namespace

TokenSamples SampleTokens(const at::Tensor& logits, std::span<const SampleInput> inputs) {
  if (IsGpu(logits.device())) return SampleTokensOnDevice(logits, inputs);
  const at::Tensor host = logits.to(at::kCPU).contiguous();
  const float* rows = host.const_data_ptr<float>();
  const auto vocab_size = static_cast<size_t>(host.size(1));
  TokenSamples sampled;
  sampled.tokens.resize(inputs.size());
  sampled.logprobs.resize(inputs.size());
  constexpr int64_t kGrainLogits = 16384;  // minimum per thread
  const int64_t grain = std::max<int64_t>(1, kGrainLogits / host.size(1));
  ForParts(host.size(0), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(vocab_size);
    for (int64_t row = begin; row < end; ++row) {
      const auto [token, logprob] =
          SampleRow({rows + row * vocab_size, vocab_size}, inputs[row], weights);
      sampled.tokens[row] = static_cast<int32_t>(token);
      sampled.logprobs[row] = logprob;
    }
  });
  return sampled;
}

}  // namespace lathe::worker
