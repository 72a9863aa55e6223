// One layer of a decoder: attention and a gated MLP, each after a norm and each added to its input.
// Some families norm an output before it is added.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/worker/layers/fsdp_units.h"
#include "services/worker/layers/rope.h"
#include "services/worker/models/decoder_weights.h"
#include "services/worker/models/model.h"
#include "services/worker/models/stacked_linear.h"

namespace lathe::worker {

// Objects that all layers of a decoder share. They outlive the layers.
struct DecoderLayerContext {
  const ModelPart& part;
  const DecoderWeights& weights;
  const RankGroup& tp;
  const std::vector<RopeTable>& ropes;  // by DecoderSpec::ropes
  MatmulArithmetic attention_arithmetic;
};

// Activations are fp32. The weights' dtype and arithmetic determine products with the weights. On
// ranks of axis fsdp a step unshards the layer's units in order.
class DecoderLayer {
 public:
  struct Saved;

  DecoderLayer(const DecoderLayerContext& context, int64_t index);

  // Model::LayerForward. If `saved` is set, it receives all that Backward needs, but for
  // log_sums_tn. Without `wants_output` the step ends as soon as `saved` is complete and returns an
  // undefined tensor.
  at::Tensor Forward(const at::Tensor& x, const PackedRows& rows, AttentionContext& attention,
                     Saved* saved, bool wants_output) const;
  // Forward over the packed rows themselves.
  at::Tensor ForwardSaving(const at::Tensor& x, const PackedRows& rows, bool wants_output,
                           std::unique_ptr<LayerSaved>* saved) const;
  at::Tensor Backward(const at::Tensor& dy, const PackedRows& rows, LayerSaved& saved,
                      std::vector<AdapterGradients*>& gradients) const;

  // FSDP units in the order of a step of this kind.
  std::vector<int64_t> UnitsOf(ModelStep::Kind kind) const;

 private:
  at::Tensor Attend(const at::Tensor& x, const PackedRows& rows, AttentionContext& attention,
                    Saved* saved) const;
  // residual + norm(linear(x)), summed over tp as `what`. Row `norm` may be kNoRow; otherwise
  // `saved` (may be null) receives the norm's input.
  at::Tensor AddOutput(const char* what, const at::Tensor& residual, const StackedLinear& linear,
                       const at::Tensor& x, const PackedRows& rows, int64_t norm,
                       at::Tensor* saved) const;
  // dL/d(linear(x)) of AddOutput. `saved` is undefined if there is no norm.
  at::Tensor OutputNormBackward(const at::Tensor& dy, int64_t norm, const at::Tensor& saved) const;
  at::Tensor MlpBackward(const at::Tensor& dy, const PackedRows& rows, Saved& saved,
                         std::vector<AdapterGradients*>& gradients) const;
  at::Tensor AttentionBackward(const at::Tensor& dy, const PackedRows& rows, Saved& saved,
                               std::vector<AdapterGradients*>& gradients) const;

  // Unshards the unit of `linear` and prefetches that of `next`, if they differ. Does nothing if
  // the rank has whole weights.
  void Unshard(const StackedLinear& linear, const StackedLinear* next = nullptr) const;
  at::Tensor SplitHeads(const at::Tensor& x_tw) const;
  QkvHeads HeadsOf(const at::Tensor& qkv_tw) const;
  QkPreparation PreparationOf(const PackedRows& rows) const;
  // `row` of the table of vectors.
  const at::Tensor& Vector(int64_t row) const { return context_.weights.vectors[row]; }

  const DecoderLayerContext& context_;
  const int64_t index_;
  const LayerSpec& spec_;  // this rank's
  const double eps_;
  const RopeTable* const rope_;  // null: no rope
  StackedLinear qkv_;
  StackedLinear o_;
  StackedLinear gate_up_;
  StackedLinear down_;
};

}  // namespace lathe::worker
