// Qwen3 dense: rms-normed queries and keys, rope, grouped-query attention, gated silu MLP.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "services/worker/layers/rope.h"
#include "services/worker/models/model.h"
#include "services/worker/models/qwen3/hf_weights.h"

namespace lathe::worker {

// Activations are fp32; products with the weights are as the weights' dtype and arithmetic say.
class Qwen3Model : public Model {
 public:
  Qwen3Model(ModelPart part, Qwen3Weights weights, RankGroup tp = {});

  const ModelPart& part() const override { return part_; }
  const RankGroup& tp() const override { return tp_; }
  at::Device device() const override { return weights_.embedding[0].device(); }
  int64_t WeightBytes() const override;
  MatmulArithmetic attention_arithmetic() const override { return attention_arithmetic_; }

  void BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const override;
  void EndStep() const override;
  void Rest() const override;
  at::Tensor Embed(const PackedRows& rows) const override;
  at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                          AttentionContext& attention) const override;
  at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                std::unique_ptr<LayerSaved>* saved) const override;
  std::unique_ptr<LayerSaved> LayerRecompute(int64_t layer, const at::Tensor& x,
                                             const PackedRows& rows) const override;
  at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                           std::unique_ptr<LayerSaved> saved,
                           std::vector<AdapterGradients*>& gradients) const override;
  at::Tensor FinalNorm(const at::Tensor& x) const override;
  at::Tensor FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const override;
  at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const override;
  at::Tensor LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                            const std::vector<Segment>& segments,
                            std::vector<AdapterGradients*>& gradients) const override;

 private:
  struct Saved;

  // Of ranks that keep shares of the weights: those that a step holds, in this order.
  std::vector<int64_t> BlocksOf(const ModelStep& step) const;
  // From here on these matrices are there, and `next` is on its way.
  void Hold(int64_t layer, LayerBlock block, std::optional<LayerBlock> next = std::nullopt) const;
  // Calls `use(piece, first row)` for each, while it is there.
  template <typename Use>
  void ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_block, const Use& use) const;

  // Without `wants_output` it stops when `saved` is complete, and returns nothing.
  at::Tensor Layer(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                   AttentionContext& attention, Saved* saved, bool wants_output) const;
  // residual + x w^T + bias, of which this rank has some columns of `w`: the sum over tp is the
  // whole. The first rank's share has residual and bias.
  at::Tensor ShareOnto(const at::Tensor& residual, const at::Tensor& x, const BaseWeight& w,
                       const at::Tensor& bias) const;
  at::Tensor MlpBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows, Saved& saved,
                         std::vector<AdapterGradients*>& gradients) const;
  at::Tensor AttentionBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                               Saved& saved, std::vector<AdapterGradients*>& gradients) const;

  ModelPart part_;
  RankGroup tp_;
  Qwen3Weights weights_;
  MatmulArithmetic attention_arithmetic_;
  RopeTable rope_;
};

}  // namespace lathe::worker
