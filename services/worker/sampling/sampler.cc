#include "services/worker/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/Parallel.h>

#include "services/worker/kernels/cpu/draw_kernel.h"
#include "services/worker/sampling/top_filter.h"

namespace lathe::worker {
namespace {

struct Drawn {
  int64_t token = 0;
  float logprob = std::numeric_limits<float>::quiet_NaN();
};

// `weights` is room for one number per logit.
Drawn DrawRow(std::span<const float> logits, const Draw& draw, std::span<float> weights) {
  const SamplingParams& params = *draw.params;
  const bool is_greedy = params.temperature == 0;
  const float inverse_temperature = is_greedy ? 1.0f : static_cast<float>(1.0 / params.temperature);
  const float max = MaxOf(logits);
  const double sum = Weigh(logits, max, inverse_temperature, weights.data());
  if (!std::isfinite(sum) || !std::isfinite(max)) return {};
  const DrawKey key = {.seed = params.seed,
                       .sample_index = static_cast<uint32_t>(draw.sample_index),
                       .position = static_cast<uint32_t>(draw.position)};
  Drawn drawn;
  if (is_greedy) {
    drawn.token = FirstOf(logits, max);
  } else if (HasTopFilter(params)) {
    drawn.token = RaceAmong(FilterTop(weights, sum, params), weights.data(), key);
  } else {
    drawn.token = Race(weights, key);
  }
  drawn.logprob = static_cast<float>(
      static_cast<double>(logits[drawn.token] - max) * inverse_temperature - std::log(sum));
  return drawn;
}

}  // namespace

DrawnTokens DrawTokens(const at::Tensor& logits, std::span<const Draw> draws) {
  const at::Tensor host = logits.to(at::kCPU).contiguous();
  const float* rows = host.const_data_ptr<float>();
  const auto vocab_size = static_cast<size_t>(host.size(1));
  DrawnTokens drawn;
  drawn.tokens.resize(draws.size());
  drawn.logprobs.resize(draws.size());
  constexpr int64_t kGrainLogits = 16384;  // fewer are not worth another thread
  const int64_t grain = std::max<int64_t>(1, kGrainLogits / host.size(1));
  at::parallel_for(0, host.size(0), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(vocab_size);
    for (int64_t row = begin; row < end; ++row) {
      const auto [token, logprob] =
          DrawRow({rows + row * vocab_size, vocab_size}, draws[row], weights);
      drawn.tokens[row] = static_cast<int32_t>(token);
      drawn.logprobs[row] = logprob;
    }
  });
  return drawn;
}

}  // namespace lathe::worker
