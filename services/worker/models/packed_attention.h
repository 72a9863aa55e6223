// Attention in a training pass: keys and values come from the packed rows themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/norms.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

class PackedAttention : public AttentionContext {
 public:
  // `cu_seqlens` must outlive this; `arithmetic` is the model's attention_arithmetic.
  PackedAttention(const std::vector<int64_t>& cu_seqlens, MatmulArithmetic arithmetic)
      : cu_seqlens_(cu_seqlens), arithmetic_(arithmetic) {}

  at::Tensor NormRopeAttend(int64_t /*layer*/, const QkHeads& heads, const at::Tensor& v,
                            const QkNormWeights& weights, const RopeTable& rope,
                            const at::Tensor& positions) override {
    const QkHeads normed = NormRope(heads, weights, rope, positions);
    AttentionOutput output = CausalAttention(normed.q, normed.k, v, cu_seqlens_, arithmetic_);
    log_sums_ = std::move(output.log_sums);
    return std::move(output.out);
  }

  // AttentionOutput::log_sums of the last layer computed.
  const at::Tensor& log_sums() const { return log_sums_; }

 private:
  const std::vector<int64_t>& cu_seqlens_;
  const MatmulArithmetic arithmetic_;
  at::Tensor log_sums_;
};

}  // namespace lathe::worker
