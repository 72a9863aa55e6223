#include "services/worker/training/losses/loss.h"

#include <algorithm>
#include <cmath>

#include "services/worker/training/losses/registry.h"

namespace lathe::worker {
namespace {

double At(const std::vector<float>& values, int64_t i) { return values.empty() ? 0.0 : values[i]; }

LossToken TokenAt(const LossSpec& spec, const DatumLogprobs& in, int64_t entry, double shared) {
  const TrainDatum& datum = in.datum;
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

// Whether the KL term counts the entry: 0 is what clients pad log-probabilities with.
bool HasReference(const LossSpec& spec, const TrainDatum& datum, int64_t entry) {
  return spec.kl_coef > 0 && At(datum.reference_logprobs, entry) != 0;
}

bool HasOwnTerm(const LossSpec& spec, const TrainDatum& datum, int64_t entry) {
  const int64_t position = entry / datum.num_targets;
  return At(datum.weights, entry) != 0 || At(datum.advantages, position) != 0 ||
         (spec.kl_coeff > 0 && At(datum.mask, position) != 0);
}

// kl_coef times the estimator k3 of KL(policy, reference): exp(ref - p) - (ref - p) - 1.
LossValue KlTerm(const LossSpec& spec, double p, double reference) {
  const double difference = reference - p;
  const double excess = std::expm1(difference);
  return {.loss = spec.kl_coef * (excess - difference), .slope = -spec.kl_coef * excess};
}

int64_t CountEntries(const LossSpec& spec, const TrainDatum& datum) {
  int64_t count = 0;
  const auto num_entries = static_cast<int64_t>(datum.targets.size());
  for (int64_t i = 0; i < num_entries; ++i) count += TakesPart(spec, datum, i) ? 1 : 0;
  return count;
}

double ScaleOf(int64_t count) { return 1.0 / static_cast<double>(std::max<int64_t>(1, count)); }

}  // namespace

bool TakesPart(const LossSpec& spec, const TrainDatum& datum, int64_t entry) {
  return HasOwnTerm(spec, datum, entry) || HasReference(spec, datum, entry);
}

void EvaluateLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t begin, int64_t end,
                  float* losses, float* slopes) {
  const LossProgram& program = FindLoss(spec.kind);
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
    losses[entry - begin] = static_cast<float>(value.loss * in.datum.loss_scale);
    slopes[entry - begin] = static_cast<float>(value.slope * in.datum.loss_scale);
  }
}

void ScaleLosses(TrainRequest& request) {
  for (TrainDatum& datum : request.data) datum.loss_scale = 1.0;
  if (request.loss.normalization == LossNormalization::kNone) return;
  int64_t total = 0;
  for (TrainDatum& datum : request.data) {
    const int64_t count = CountEntries(request.loss, datum);
    total += count;
    datum.loss_scale = ScaleOf(count);
  }
  if (request.loss.normalization == LossNormalization::kDatums) return;
  for (TrainDatum& datum : request.data) datum.loss_scale = ScaleOf(total);
}

}  // namespace lathe::worker
