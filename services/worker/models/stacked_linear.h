// Linears of one layer that read the same input: frozen matrix, biases and low-rank updates.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/layers/base_weight.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/models/decoder_weights.h"
#include "services/worker/spec/activation.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/spec/packed_rows.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// The matrix must be unsharded while a function uses it.
class StackedLinear {
 public:
  // The stack `index` of the table of linears.
  StackedLinear(const ModelPart& part, const DecoderWeights& weights, int64_t index);

  // FSDP unit that contains the matrix.
  int64_t unit() const { return unit_; }

  // x [T, K] -> outputs of all linears side by side [T, N], in x's dtype.
  at::Tensor Forward(const at::Tensor& x, const std::vector<Segment>& segments) const;

  // activation(gate) * up of a stack of these two: GatedActivation of Forward's slices.
  at::Tensor ForwardGated(Activation activation, const at::Tensor& x,
                          const std::vector<Segment>& segments) const;

  // This rank's share of residual + Forward(x), if the rank has some of the inputs. The sum over tp
  // is the result, in fp32. Rank 0's share includes residual and bias. An undefined residual counts
  // as 0.
  at::Tensor ForwardOnto(const at::Tensor& residual, const at::Tensor& x,
                         const std::vector<Segment>& segments) const;

  // dL/d(outputs) [T, N] -> dL/dx [T, K] in `dtype`. `x` is the input of the forward step. Adds the
  // gradients of the low-rank updates.
  at::Tensor Backward(const at::Tensor& x, const at::Tensor& dy,
                      const std::vector<Segment>& segments,
                      const std::vector<AdapterGradients*>& gradients,
                      at::ScalarType dtype = at::kFloat) const;

  // The columns of `y` [T, N] that belong to linear `i` of the stack.
  at::Tensor Slice(const at::Tensor& y, int64_t i) const;

 private:
  std::vector<LoraPart> PartsOf(const at::Tensor& y) const;

  BaseWeight weight_;
  at::Tensor bias_;
  MatmulArithmetic arithmetic_;
  int64_t first_row_;  // of the table of linears
  int64_t unit_;
  bool is_first_rank_;
  std::vector<int64_t> ends_;  // column after the last of each linear
};

}  // namespace lathe::worker
