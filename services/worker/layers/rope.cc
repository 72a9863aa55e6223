#include "services/worker/layers/rope.h"

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

}  // namespace

RopeTable::RopeTable(int64_t head_dim, int64_t num_positions, double theta, at::Device device) {
  // fp32 throughout, like HF: the rounding of its angles is part of the model.
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::kFloat).div_(head_dim);
  const at::Tensor frequencies = at::pow(theta, exponents).reciprocal_();
  const at::Tensor positions = at::arange(num_positions, at::kFloat);
  const at::Tensor angles = at::outer(positions, frequencies);
  cos_ = angles.cos().to(device);
  sin_ = angles.sin().to(device);
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
