// Attention in a training pass: keys and values come from the packed rows themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/attention_context.h"
#include "services/worker/spec/packed_rows.h"
#include "services/worker/torch/gpu.h"

namespace lathe::worker {

// Returns the dtype of a training pass's activations: see AttentionContext::dtype.
inline at::ScalarType PackedDtype(at::Device device, MatmulArithmetic attention) {
  return IsGpu(device) && attention == MatmulArithmetic::kBf16 ? at::kBFloat16 : at::kFloat;
}

class PackedAttention : public AttentionContext {
 public:
  // `rows` must outlive this; `arithmetic` is the model's attention_arithmetic.
  PackedAttention(const PackedRows& rows, MatmulArithmetic arithmetic)
      : cu_seqlens_(rows.cu_seqlens),
        arithmetic_(arithmetic),
        dtype_(PackedDtype(rows.tokens.device(), arithmetic)) {}

  at::ScalarType dtype() const override { return dtype_; }

  at::Tensor Attend(int64_t /*layer*/, const AttentionSpec& spec, const QkvHeads& raw,
                    const QkPreparation& preparation) override {
    const QkHeads qk = PrepareQk(raw.qk, preparation);
    AttentionOutput output = CausalAttention(spec, qk.q, qk.k, raw.v, cu_seqlens_, arithmetic_);
    log_sums_ = std::move(output.log_sums);
    return std::move(output.out);
  }

  // AttentionOutput::log_sums of the last layer computed.
  const at::Tensor& log_sums() const { return log_sums_; }

 private:
  const std::vector<int64_t>& cu_seqlens_;
  const MatmulArithmetic arithmetic_;
  const at::ScalarType dtype_;
  at::Tensor log_sums_;
};

}  // namespace lathe::worker
