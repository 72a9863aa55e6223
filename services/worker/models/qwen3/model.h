// Qwen3 dense: rms-normed queries and keys, rope, grouped-query attention, gated silu MLP.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "services/worker/layers/rope.h"
#include "services/worker/models/decoder_weights.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Activations are fp32. The weights' dtype and arithmetic determine products with the weights.
class Qwen3Model : public Model {
 public:
  Qwen3Model(ModelPart part, DecoderWeights weights, RankGroup tp = {});

  const ModelPart& part() const override { return part_; }
  const RankGroup& tp() const override { return tp_; }
  at::Device device() const override { return weights_.embedding[0].device(); }
  int64_t WeightBytes() const override;
  MatmulArithmetic attention_arithmetic() const override { return attention_arithmetic_; }

  void BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const override;
  void EndStep() const override;
  void Idle() const override;
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

  // Returns the FSDP units that a step unshards, in order. Only with sharded weights.
  std::vector<int64_t> UnitsOf(const ModelStep& step) const;
  int64_t UnitOf(int64_t stack) const;
  // Row of a stack's first linear in the table.
  int64_t RowOf(int64_t stack) const { return part_.whole.linears->stacks[stack].first; }
  // Unshards the unit of `stack` and prefetches that of `next`. Does nothing if the rank has whole
  // weights.
  void Unshard(int64_t stack, std::optional<int64_t> next = std::nullopt) const;
  // Calls `use(piece, first row)` for each piece while it is unsharded. Only with sharded weights.
  template <typename Use>
  void ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_unit, const Use& use) const;

  // Computes one layer. Without `wants_output` it stops when `saved` is complete and returns an
  // undefined tensor.
  at::Tensor Layer(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                   AttentionContext& attention, Saved* saved, bool wants_output) const;
  // Computes this rank's share of residual + x w^T + bias, where the rank has some columns of `w`.
  // The sum over tp is the result. Rank 0's share includes residual and bias.
  at::Tensor ShareOnto(const at::Tensor& residual, const at::Tensor& x, const BaseWeight& w,
                       const at::Tensor& bias) const;
  at::Tensor MlpBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows, Saved& saved,
                         std::vector<AdapterGradients*>& gradients) const;
  at::Tensor AttentionBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                               Saved& saved, std::vector<AdapterGradients*>& gradients) const;

  ModelPart part_;
  RankGroup tp_;
  DecoderWeights weights_;
  MatmulArithmetic attention_arithmetic_;
  RopeTable rope_;
};

}  // namespace lathe::worker
