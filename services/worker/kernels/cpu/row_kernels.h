// Hot file, free of torch: the row-wise steps of a layer on a CPU. Rows may be strided (strides in
// floats). A row's bits do not depend on other rows.
#pragma once

#include <cstdint>

#include "services/worker/spec/activation.h"

namespace lathe::worker {

// y = x / sqrt(mean(x^2) + eps) * weight for rows of `width`; y is contiguous.
struct RmsNormTask {
  const float* x;
  int64_t x_stride;
  const float* weight;  // [width]
  float* y;
  int64_t width;
  float eps;
};
void RmsNormRows(const RmsNormTask& task, int64_t begin, int64_t end);

// Prepares queries or keys for attention. Applies RmsNorm to each head, then rotates its element i
// with element i + head_dim / 2 by the angle of the row's position. Either step may be left out.
// y [rows, num_heads, head_dim] is contiguous.
struct PrepareHeadsTask {
  const float* x;  // [rows, num_heads, head_dim], a row's heads contiguous
  int64_t x_stride;
  const float* weight;       // [head_dim]; null: no norm
  const float* cos;          // [num_positions, head_dim / 2]; null: no rotation
  const float* sin;          // same
  const int64_t* positions;  // [rows]; unused without rotation
  float* y;
  int64_t num_heads;
  int64_t head_dim;
  float eps;
};
void PrepareHeadsRows(const PrepareHeadsTask& task, int64_t begin, int64_t end);

// y = activation(gate) * up for rows of `width`; y is contiguous.
struct GatedActivationTask {
  Activation activation;
  const float* gate;
  const float* up;
  int64_t gate_stride;
  int64_t up_stride;
  float* y;
  int64_t width;
};
void GatedActivationRows(const GatedActivationTask& task, int64_t begin, int64_t end);

// dL/dx of RmsNormRows, plus `residual` if given. dx may be dy.
struct RmsNormBackwardTask {
  const float* x;
  int64_t x_stride;
  const float* weight;  // [width]
  const float* dy;
  int64_t dy_stride;
  const float* residual;  // may be null
  int64_t residual_stride;
  float* dx;
  int64_t dx_stride;
  int64_t width;
  float eps;
};
void RmsNormBackwardRows(const RmsNormBackwardTask& task, int64_t begin, int64_t end);

// dL/dx of PrepareHeadsRows. dx may be x; the contents of dy are undefined afterwards.
struct PrepareHeadsBackwardTask {
  const float* x;  // input of PrepareHeadsRows
  int64_t x_stride;
  const float* weight;
  const float* cos;
  const float* sin;
  const int64_t* positions;
  float* dy;  // [rows, num_heads, head_dim], contiguous
  float* dx;  // a row's heads contiguous
  int64_t dx_stride;
  int64_t num_heads;
  int64_t head_dim;
  float eps;
};
void PrepareHeadsBackwardRows(const PrepareHeadsBackwardTask& task, int64_t begin, int64_t end);

// dL/dgate and dL/dup of GatedActivationRows, written over gate and up.
struct GatedActivationBackwardTask {
  Activation activation;
  float* gate;
  float* up;
  int64_t gate_stride;
  int64_t up_stride;
  const float* dy;
  int64_t dy_stride;
  int64_t width;
};
void GatedActivationBackwardRows(const GatedActivationBackwardTask& task, int64_t begin,
                                 int64_t end);

}  // namespace lathe::worker
