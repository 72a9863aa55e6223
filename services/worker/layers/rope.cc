#include "services/worker/layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lathe::worker {
namespace {

// out = (x1 c - x2 s, x2 c + x1 s); `direction` -1 negates s.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  double direction) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor x1 = x.narrow(-1, 0, half);
  const at::Tensor x2 = x.narrow(-1, half, half);
  at::Tensor out = at::empty(x.sizes(), x.options());
  at::Tensor out1 = out.narrow(-1, 0, half);
  at::Tensor out2 = out.narrow(-1, half, half);
  at::mul_out(out1, x1, cos).addcmul_(x2, sin, -direction);
  at::mul_out(out2, x2, cos).addcmul_(x1, sin, direction);
  return out;
}

// Long waves turn slower by `factor`, short ones do not, and those between are interpolated.
at::Tensor Llama3(const at::Tensor& plain, const RopeSpec& spec) {
  const auto original = static_cast<double>(spec.original_max_position_embeddings);
  const double low = spec.low_freq_factor;
  const double high = spec.high_freq_factor;
  const at::Tensor wavelengths = plain.reciprocal().mul_(2 * std::numbers::pi);
  const at::Tensor is_long = wavelengths > original / low;
  const at::Tensor is_short = wavelengths < original / high;
  const at::Tensor scaled = at::where(is_long, plain / spec.factor, plain);
  const at::Tensor weight = wavelengths.reciprocal().mul_(original).sub_(low).div_(high - low);
  const at::Tensor between =
      weight.neg().add_(1).mul_(scaled).div_(spec.factor).add_(weight * scaled);
  return at::where(is_long.logical_or(is_short), scaled, between);
}

// Frequencies up to one index stay, those from another one on are divided by `factor`, and those
// between are interpolated (arXiv:2309.00071).
at::Tensor Yarn(const at::Tensor& powers, const RopeSpec& spec) {
  const int64_t num_frequencies = powers.size(0);
  const auto head_dim = static_cast<double>(2 * num_frequencies);
  // Returns the index at which a wave turns `turns` times in the original context.
  const auto index_at = [&](double turns) {
    const auto original = static_cast<double>(spec.original_max_position_embeddings);
    return head_dim * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(spec.theta));
  };
  double begin = index_at(spec.beta_fast);
  double end = index_at(spec.beta_slow);
  if (spec.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, head_dim - 1);
  if (begin == end) end += 0.001;
  const at::Tensor ramp =
      at::arange(num_frequencies, at::kFloat).sub_(begin).div_(end - begin).clamp_(0, 1);
  const at::Tensor kept = ramp.neg().add_(1);
  const at::Tensor divided = powers.mul(spec.factor).reciprocal_();
  return divided.mul_(kept.neg().add_(1)).add_(powers.reciprocal().mul_(kept));
}

}  // namespace

at::Tensor RopeFrequencies(const RopeSpec& spec, int64_t head_dim) {
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::kFloat).div_(head_dim);
  const at::Tensor powers = at::pow(spec.theta, exponents);
  switch (spec.type) {
    case RopeType::kDefault:
      return powers.reciprocal();
    case RopeType::kLinear:
      return powers.reciprocal().div_(spec.factor);
    case RopeType::kLlama3:
      return Llama3(powers.reciprocal(), spec);
    case RopeType::kYarn:
      return Yarn(powers, spec);
  }
  return {};
}

RopeTable::RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t num_positions,
                     at::Device device) {
  const at::Tensor positions = at::arange(num_positions, at::kFloat);
  const at::Tensor angles = at::outer(positions, RopeFrequencies(spec, head_dim));
  cos_ = angles.cos().mul_(spec.attention_factor).to(device);
  sin_ = angles.sin().mul_(spec.attention_factor).to(device);
}

std::pair<at::Tensor, at::Tensor> RopeTable::At(const at::Tensor& positions) const {
  return {cos_.index_select(0, positions).unsqueeze(1),
          sin_.index_select(0, positions).unsqueeze(1)};
}

at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return Rotate(x, cos, sin, /*direction=*/1);
}

at::Tensor ApplyRopeBackward(const at::Tensor& dy, const at::Tensor& cos, const at::Tensor& sin) {
  return Rotate(dy, cos, sin, /*direction=*/-1);
}

}  // namespace lathe::worker
