#include "libs/common/losses/evaluate_loss.h"

#include <algorithm>
#include <cmath>

namespace lathe {
namespace {

double At(std::span<const float> values, int64_t i) { return values.empty() ? 0.0 : values[i]; }

LossToken TokenAt(const LossSpec& spec, const DatumLogprobs& in, int64_t entry, double shared) {
  const LossDatum& datum = in.datum;
  const int64_t position = entry / datum.num_targets;
  return {.p = in.logprobs[entry],
          .q = At(datum.logprobs, position),
          .weight = At(datum.weights, entry),
          .advantage = At(datum.advantages, position),
          .clip_low = datum.clip_low.empty() ? spec.clip_low : datum.clip_low[position],
          .clip_high = datum.clip_high.empty() ? spec.clip_high : datum.clip_high[position],
          .mask = At(datum.mask, position),
          .shared = shared};
}

// Returns true if the KL term includes the entry. Clients pad log-probabilities with 0.
bool HasReference(const LossSpec& spec, const LossDatum& datum, int64_t entry) {
  return spec.kl_coef > 0 && At(datum.reference_logprobs, entry) != 0;
}

bool CountsMask(const LossSpec& spec) {
  return spec.program->counts_mask != nullptr && spec.program->counts_mask(spec);
}

bool HasOwnTerm(const LossSpec& spec, const LossDatum& datum, int64_t entry) {
  const int64_t position = entry / datum.num_targets;
  return At(datum.weights, entry) != 0 || At(datum.advantages, position) != 0 ||
         (At(datum.mask, position) != 0 && CountsMask(spec));
}

// Returns kl_coef times the k3 estimator of KL(policy, reference): exp(ref - p) - (ref - p) - 1.
LossValue KlTerm(const LossSpec& spec, double p, double reference) {
  const double difference = reference - p;
  const double excess = std::expm1(difference);
  return {.loss = spec.kl_coef * (excess - difference), .slope = -spec.kl_coef * excess};
}

int64_t CountEntries(const LossSpec& spec, const LossDatum& datum) {
  int64_t count = 0;
  for (int64_t i = 0; i < datum.num_entries; ++i) count += TakesPart(spec, datum, i) ? 1 : 0;
  return count;
}

double ScaleOf(int64_t count) { return 1.0 / static_cast<double>(std::max<int64_t>(1, count)); }

}  // namespace

bool TakesPart(const LossSpec& spec, const LossDatum& datum, int64_t entry) {
  return HasOwnTerm(spec, datum, entry) || HasReference(spec, datum, entry);
}

void EvaluateLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t begin, int64_t end,
                  float* losses, float* slopes) {
  const LossProgram& program = *spec.program;
  const double shared = program.couple != nullptr ? program.couple(in) : 0.0;
  for (int64_t entry = begin; entry < end; ++entry) {
    LossValue value;
    if (HasOwnTerm(spec, in.datum, entry)) {
      value = program.evaluate(spec, TokenAt(spec, in, entry, shared));
    }
    if (HasReference(spec, in.datum, entry)) {
      const LossValue kl = KlTerm(spec, in.logprobs[entry], in.datum.reference_logprobs[entry]);
      value.loss += kl.loss;
      value.slope += kl.slope;
    }
    losses[entry - begin] = static_cast<float>(value.loss * in.datum.scale);
    slopes[entry - begin] = static_cast<float>(value.slope * in.datum.scale);
  }
}

float ReferenceLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t entry) {
  if (!HasReference(spec, in.datum, entry)) return 0;
  const LossValue kl = KlTerm(spec, in.logprobs[entry], in.datum.reference_logprobs[entry]);
  return static_cast<float>(kl.loss * in.datum.scale);
}

std::vector<double> LossScales(const LossSpec& spec, std::span<const LossDatum> data) {
  std::vector<double> scales(data.size(), 1.0);
  if (spec.normalization == LossNormalization::kNone) return scales;
  int64_t total = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    const int64_t count = CountEntries(spec, data[i]);
    total += count;
    scales[i] = ScaleOf(count);
  }
  if (spec.normalization == LossNormalization::kTokens) {
    std::fill(scales.begin(), scales.end(), ScaleOf(total));
  }
  return scales;
}

}  // namespace lathe
