// The interface through which a model's layer attends: over packed sequences in training, over a KV
// cache in sampling.
#pragma once

#include <cstdint>

#include "services/worker/layers/norms.h"
#include "services/worker/spec/attention_spec.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Projections of some rows, split into heads: q [T, Hq, D], k and v [T, Hk, D].
struct QkvHeads {
  QkHeads qk;
  at::Tensor v;
};

class AttentionContext {
 public:
  virtual ~AttentionContext() = default;
  // Dtype of a layer's activations between its norms and its residual stream, which is fp32:
  // projections, attention's output and the MLP's activations.
  virtual at::ScalarType dtype() const { return at::kFloat; }
  // Applies PrepareQk (layers/norms.h) to queries and keys, then attends within each sequence as
  // `spec` says. Returns [T, Hq, D].
  virtual at::Tensor Attend(int64_t layer, const AttentionSpec& spec, const QkvHeads& raw,
                            const QkPreparation& preparation) = 0;
};

}  // namespace lathe::worker
