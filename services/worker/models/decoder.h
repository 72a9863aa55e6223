// The decoder that all families share: embedding, layers, final norm and head, as its spec and
// tables say. A family has no code of its own here.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>

#include "services/worker/layers/rope.h"
#include "services/worker/models/decoder_layer.h"
#include "services/worker/models/decoder_weights.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// InvalidArgument names the first field of config.json whose value Decoder does not implement.
absl::Status CheckSupported(const DecoderSpec& spec);

class Decoder : public Model {
 public:
  // CheckSupported(part.whole) must be OK.
  Decoder(ModelPart part, DecoderWeights weights, RankGroup tp = {});
  // The layers refer to other members.
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelPart& part() const override { return part_; }
  const RankGroup& tp() const override { return tp_; }
  at::Device device() const override { return weights_.embedding[0].device(); }
  int64_t WeightBytes() const override;
  MatmulArithmetic attention_arithmetic() const override { return context_.attention_arithmetic; }

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
  // Returns the FSDP units that a step unshards, in order. Only with sharded weights.
  std::vector<int64_t> UnitsOf(const ModelStep& step) const;
  // Calls `use(piece, first row)` for each piece while it is unsharded. Only with sharded weights.
  template <typename Use>
  void ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_unit, const Use& use) const;
  at::Tensor EmbedRows(const PackedRows& rows) const;
  const at::Tensor& final_norm() const { return weights_.vectors[part_.whole.vectors->final_norm]; }
  int64_t lm_head_row() const { return part_.whole.linears->lm_head; }

  const ModelPart part_;
  const RankGroup tp_;
  const DecoderWeights weights_;
  const std::vector<RopeTable> ropes_;
  const DecoderLayerContext context_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace lathe::worker
