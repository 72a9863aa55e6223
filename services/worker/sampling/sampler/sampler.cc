#include "services/worker/sampling/sampler/sampler.h"

#include <algorithm>
#include <limits>

#include "services/worker/kernels/cpu/sampling/draw_kernel.h"
#include "services/worker/kernels/cpu/sampling/top_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/sampling/sampler/device_sampler.h"
#include "services/worker/sampling/sampler/row_distribution.h"
#include "services/worker/sampling/sampler/top_filter.h"

namespace lathe::worker {
namespace {

struct Drawn {
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
Drawn DrawRow(std::span<const float> logits, const Draw& draw, std::span<float> weights) {
  const SamplingParams& params = *draw.params;
  const RowDistribution row = DistributionOf(logits, params.temperature, weights);
  if (draw.top != nullptr) AppendTop(logits, row, *draw.top);
  if (!row.is_finite()) return {};
  const DrawKey key = {.seed = params.seed,
                       .sample_index = static_cast<uint32_t>(draw.sample_index),
                       .position = static_cast<uint32_t>(draw.position)};
  Drawn drawn;
  if (params.temperature == 0) {
    drawn.token = FirstOf(logits, row.max);
  } else if (HasTopFilter(params)) {
    drawn.token = RaceAmong(FilterTop(weights, row.sum, params), weights.data(), key);
  } else {
    drawn.token = Race(weights, key).token;
  }
  drawn.logprob = row.Logprob(logits[drawn.token]);
  return drawn;
}

}  // namespace

DrawnTokens DrawTokens(const at::Tensor& logits, std::span<const Draw> draws) {
  if (logits.is_cuda()) return DrawTokensOnDevice(logits, draws);
  const at::Tensor host = logits.to(at::kCPU).contiguous();
  const float* rows = host.const_data_ptr<float>();
  const auto vocab_size = static_cast<size_t>(host.size(1));
  DrawnTokens drawn;
  drawn.tokens.resize(draws.size());
  drawn.logprobs.resize(draws.size());
  constexpr int64_t kGrainLogits = 16384;  // minimum per thread
  const int64_t grain = std::max<int64_t>(1, kGrainLogits / host.size(1));
  ForParts(host.size(0), grain, [&](int64_t begin, int64_t end) {
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
