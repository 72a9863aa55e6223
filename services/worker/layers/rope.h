// Rotary position embedding (arXiv:2104.09864) in the convention of HF: element i of a head is
// rotated together with element i + D/2.
#pragma once

#include <cstdint>
#include <utility>

#include "services/worker/spec/rope_spec.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the angles per position, [head_dim / 2] fp32. Computes them in fp32 with the operations
// and the order of HF (modeling_rope_utils.py of transformers 5.23): their rounding is part of the
// model.
at::Tensor RopeFrequencies(const RopeSpec& spec, int64_t head_dim);

// Cosines and sines for all positions of a model, computed once.
class RopeTable {
 public:
  RopeTable(const RopeSpec& spec, int64_t head_dim, int64_t num_positions, at::Device device);

  // Returns the rows of `positions` [T] int64, each in [0, num_positions): (cos, sin), [T, 1, D/2]
  // each.
  std::pair<at::Tensor, at::Tensor> At(const at::Tensor& positions) const;

  // [num_positions, D/2] fp32
  const at::Tensor& cos() const { return cos_; }
  const at::Tensor& sin() const { return sin_; }

 private:
  at::Tensor cos_;
  at::Tensor sin_;
};

// Rotates x [T, heads, D] by the angles of (cos, sin) [T, 1, D/2].
at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// Backward of ApplyRope: a rotation by the opposite angle.
at::Tensor ApplyRopeBackward(const at::Tensor& dy, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace lathe::worker
