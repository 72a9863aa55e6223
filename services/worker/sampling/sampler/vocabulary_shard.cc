#include "services/worker/sampling/sampler/vocabulary_shard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"

namespace lathe::worker {
namespace {

constexpr float kLeastLogit = -std::numeric_limits<float>::infinity();
constexpr TopCandidate kNoCandidate = {.token = std::numeric_limits<int32_t>::max(),
                                       .logit = kLeastLogit};

}  // namespace

at::Tensor WholeRows(std::string_view name, const at::Tensor& logits,
                     const VocabularyShard& vocabulary) {
  if (vocabulary.tp.is_alone()) return logits;
  // [world, n, own]. Only the last columns of the last ranks are padding.
  const at::Tensor parts = vocabulary.tp.Gather(name, logits.contiguous());
  return parts.transpose(0, 1)
      .reshape({logits.size(0), -1})
      .narrow(1, 0, vocabulary.whole_size)
      .contiguous();
}

RowDistribution DistributionOfPart(std::span<const float> logits, double temperature,
                                   std::span<float> weights) {
  RowDistribution part{.inverse_temperature = InverseTemperature(temperature),
                       .max = MaxOf(logits)};
  // Avoids -inf - -inf, which is NaN.
  const float shift = part.max == kLeastLogit ? 0.0f : part.max;
  part.sum = Weigh(logits, shift, part.inverse_temperature, weights.data());
  return part;
}

RowDistribution Merge(std::span<const RowDistribution> parts) {
  RowDistribution whole{.inverse_temperature = parts[0].inverse_temperature, .max = parts[0].max};
  for (const RowDistribution& part : parts) whole.max = std::max(whole.max, part.max);
  for (const RowDistribution& part : parts) {
    const double scale =
        std::exp((static_cast<double>(part.max) - whole.max) * whole.inverse_temperature);
    whole.sum += part.sum * scale;
  }
  return whole;
}

std::vector<TopCandidate> TopCandidates(std::span<const float> own_logits,
                                        const VocabularyShard& vocabulary, int64_t k) {
  std::vector<int32_t> tokens(std::min(static_cast<size_t>(k), own_logits.size()));
  TopOf(own_logits, tokens);
  std::vector<TopCandidate> candidates(k, kNoCandidate);
  for (size_t i = 0; i < tokens.size(); ++i) {
    candidates[i] = {.token = static_cast<int32_t>(vocabulary.own.begin) + tokens[i],
                     .logit = own_logits[tokens[i]]};
  }
  return candidates;
}

std::vector<TopCandidate> MostLikely(std::vector<TopCandidate> candidates, int64_t k) {
  const auto is_before = [](const TopCandidate& a, const TopCandidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + k, candidates.end(), is_before);
  candidates.resize(k);
  return candidates;
}

}  // namespace lathe::worker
