// A small random Qwen3 model for tests, with a reference forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "services/worker/layers/norms.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/decoder.h"
#include "services/worker/models/layer_steps.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/spec/dense_decoder.h"
#include "services/worker/testing/test_weights.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline DenseShape SmallShape() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 32,
          .intermediate_size = 48,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .vocab_size = 96,
          .max_position_embeddings = 512,
          .eos_token_ids = {95}};
}

inline DecoderSpec SmallSpec() { return DenseDecoder(SmallShape()); }

inline DecoderWeights SmallWeights(const DecoderSpec& spec) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto random = [&](std::initializer_list<int64_t> sizes) {
    return at::randn(at::IntArrayRef(sizes), generator, at::kFloat).mul_(0.25);
  };
  return MakeWeights(
      spec,
      [&](int64_t n, int64_t k) {
        return BaseWeight(random({n, k}));
      },
      [&](int64_t size) { return random({size}) + 1; });
}

inline Decoder SmallModel(const DecoderSpec& spec = SmallSpec()) {
  return Decoder(WholeModel(spec), SmallWeights(spec));
}

// SmallModel with bf16 matrices, multiplied with `arithmetic`.
inline Decoder SmallBf16Model(MatmulArithmetic arithmetic = MatmulArithmetic::kFp32) {
  DecoderWeights weights = SmallWeights(SmallSpec());
  const auto round = [](BaseWeight& matrix) {
    matrix = BaseWeight(matrix.ToTensor().to(at::kBFloat16));
  };
  round(weights.embedding[0]);
  round(weights.lm_head[0]);
  for (BaseWeight& matrix : weights.stacks) round(matrix);
  weights.arithmetic = arithmetic;
  return Decoder(WholeModel(SmallSpec()), std::move(weights));
}

// Makes an adapter with a nonzero B.
inline std::shared_ptr<const AdapterWeights> RandomAdapter(int64_t rank, uint64_t seed) {
  Adapter adapter(WholeModel(SmallSpec()), {.rank = rank, .seed = seed}, at::kCPU);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  adapter.MutableParameters().normal_(0, 0.05, generator);
  return adapter.Publish();
}

// Causal attention within one sequence, without a cache.
class PlainAttention : public AttentionContext {
 public:
  at::Tensor Attend(int64_t, const AttentionSpec& spec, const QkvHeads& raw,
                    const QkPreparation& preparation) override {
    const auto [q, k] = PrepareQk(raw.qk, preparation);
    const int64_t group = q.size(1) / k.size(1);
    const at::Tensor keys = k.repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor values = raw.v.repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor future = at::ones({q.size(0), q.size(0)}, at::kBool).triu(1);
    const at::Tensor scores = at::matmul(q.transpose(0, 1), keys.transpose(1, 2))
                                  .mul(spec.scale)
                                  .masked_fill(future, -INFINITY);
    return at::matmul(at::softmax(scores, -1), values).transpose(0, 1);
  }
};

// Returns logits [T, V] of a whole sequence, computed without a cache.
inline at::Tensor PlainLogits(const Model& model, const std::vector<int32_t>& tokens,
                              const AdapterWeights* adapter) {
  const auto n = static_cast<int64_t>(tokens.size());
  PackedRows rows{.tokens = at::tensor(tokens, at::kLong),
                  .positions = at::arange(n, at::kLong),
                  .cu_seqlens = {0, n},
                  .segments = {{.begin = 0, .end = n, .adapter = adapter}}};
  PlainAttention attention;
  const at::Tensor x = RunLayers(model, rows, attention);
  return model.Logits(model.FinalNorm(x), rows.segments);
}

// Wraps another model and runs a hook before each layer.
class ModelAround : public Model {
 public:
  // `model` must outlive this object.
  explicit ModelAround(const Model& model) : model_(model) {}

  const ModelPart& part() const override { return model_.part(); }
  const RankGroup& tp() const override { return model_.tp(); }
  at::Device device() const override { return model_.device(); }
  MatmulArithmetic attention_arithmetic() const override { return model_.attention_arithmetic(); }
  int64_t WeightBytes() const override { return model_.WeightBytes(); }
  void BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const override {
    model_.BeginStep(step, next);
  }
  void EndStep() const override { model_.EndStep(); }
  at::Tensor Embed(const PackedRows& rows) const override { return model_.Embed(rows); }
  at::Tensor LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                          AttentionContext& attention) const override {
    BeforeLayer(x);
    return model_.LayerForward(layer, x, rows, attention);
  }
  at::Tensor LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                std::unique_ptr<LayerSaved>* saved) const override {
    BeforeLayer(x);
    return model_.LayerForwardSaving(layer, x, rows, saved);
  }
  std::unique_ptr<LayerSaved> LayerRecompute(int64_t layer, const at::Tensor& x,
                                             const PackedRows& rows) const override {
    return model_.LayerRecompute(layer, x, rows);
  }
  at::Tensor LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                           std::unique_ptr<LayerSaved> saved,
                           std::vector<AdapterGradients*>& gradients) const override {
    return model_.LayerBackward(layer, dy, rows, std::move(saved), gradients);
  }
  at::Tensor FinalNorm(const at::Tensor& x) const override { return model_.FinalNorm(x); }
  at::Tensor FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const override {
    return model_.FinalNormBackward(x, dy);
  }
  at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const override {
    return model_.Logits(h, segments);
  }
  at::Tensor LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                            const std::vector<Segment>& segments,
                            std::vector<AdapterGradients*>& gradients) const override {
    return model_.LogitsBackward(h, dlogits, segments, gradients);
  }

 private:
  // Hook; `x` is the layer's input. Forward steps only.
  virtual void BeforeLayer(const at::Tensor& x) const = 0;

  const Model& model_;
};

}  // namespace lathe::worker
