#include "services/worker/models/qwen3/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/layers/attention.h"
#include "services/worker/layers/base_linear.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/models/packed_attention.h"

// Legend: t rows, h hidden size, w width of stacked q, k, v (or gate, up), n heads, d head size.
namespace lathe::worker {

// Activations of a layer that its backward step cannot recompute cheaply.
struct Qwen3Model::Saved : LayerSaved {
  at::Tensor x_th;         // layer input
  at::Tensor qkv_tw;       // before q/k norm and rope
  at::Tensor attn_tw;      // attention output, before o
  at::Tensor log_sums_tn;  // AttentionOutput::log_sums
  at::Tensor mid_th;       // after the attention residual
  at::Tensor gate_up_tw;   // before silu
};

namespace {

// Column slices of the stacked projections.
struct Qkv {
  at::Tensor q;  // [T, Hq D]
  at::Tensor k;  // [T, Hk D]
  at::Tensor v;
};

Qkv SplitQkv(const at::Tensor& qkv_tw, const AttentionShape& shape) {
  const int64_t q_size = shape.num_heads * shape.head_dim;
  const int64_t kv_size = shape.num_kv_heads * shape.head_dim;
  return {qkv_tw.narrow(1, 0, q_size), qkv_tw.narrow(1, q_size, kv_size),
          qkv_tw.narrow(1, q_size + kv_size, kv_size)};
}

// Returns fp32 for matrices that are not bf16. For bf16 matrices: on a CPU the arithmetic of
// products with the weights; on a GPU bf16 if there are kernels for this shape.
MatmulArithmetic AttentionArithmetic(const AttentionShape& attention,
                                     const DecoderWeights& weights) {
  if (weights.embedding[0].dtype() != at::kBFloat16) return MatmulArithmetic::kFp32;
  if (weights.embedding[0].device().is_cpu()) return weights.arithmetic;
  const PagedShape shape = {.num_heads = attention.num_heads,
                            .num_kv_heads = attention.num_kv_heads,
                            .head_dim = attention.head_dim};
  return HasPagedAttention(shape) ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
}

at::Tensor SplitHeads(const at::Tensor& x_tw, int64_t head_dim) {
  return x_tw.view({x_tw.size(0), -1, head_dim});
}

}  // namespace

Qwen3Model::Qwen3Model(ModelPart part, DecoderWeights weights, RankGroup tp)
    : part_(std::move(part)),
      tp_(tp),
      weights_(std::move(weights)),
      attention_arithmetic_(AttentionArithmetic(part_.local.layers.at(0).attention, weights_)),
      rope_(part_.local.layers[0].attention.head_dim, part_.local.max_position_embeddings,
            part_.local.ropes[0].theta, weights_.embedding[0].device()) {}

int64_t Qwen3Model::WeightBytes() const {
  int64_t sum = 0;
  for (const auto* vectors : {&weights_.biases, &weights_.vectors}) {
    for (const at::Tensor& x : *vectors) sum += x.defined() ? static_cast<int64_t>(x.nbytes()) : 0;
  }
  if (weights_.shared.has_value()) return sum + weights_.shared->units->NumBytes();
  const BaseWeight& embedding = weights_.embedding[0];
  const BaseWeight& lm_head = weights_.lm_head[0];
  sum += embedding.NumBytes() + (lm_head.SharesMemoryWith(embedding) ? 0 : lm_head.NumBytes());
  for (const BaseWeight& matrix : weights_.stacks) sum += matrix.NumBytes();
  return sum;
}

int64_t Qwen3Model::UnitOf(int64_t stack) const { return part_.whole.linears->stacks[stack].unit; }

std::vector<int64_t> Qwen3Model::UnitsOf(const ModelStep& step) const {
  const FsdpShares& shared = *weights_.shared;
  const auto range = [](int64_t first, int64_t last) {
    std::vector<int64_t> units(last - first + 1);
    std::iota(units.begin(), units.end(), first);
    return units;
  };
  const auto pieces = [&](int64_t first, const std::vector<BaseWeight>& list) {
    return range(first, first + static_cast<int64_t>(list.size()) - 1);
  };
  const LayerSpec& layer = part_.local.layers[step.layer];
  std::vector<int64_t> units = range(UnitOf(layer.qkv), UnitOf(layer.down));
  switch (step.kind) {
    case ModelStep::Kind::kEmbed:
      return pieces(shared.first_of_embedding, weights_.embedding);
    case ModelStep::Kind::kForward:
      return units;
    case ModelStep::Kind::kRecompute:
      return range(UnitOf(layer.qkv), UnitOf(layer.gate_up));
    case ModelStep::Kind::kBackward:
      std::reverse(units.begin(), units.end());
      return units;
    case ModelStep::Kind::kHead:
      return pieces(shared.first_of_lm_head, weights_.lm_head);
  }
  return {};
}

void Qwen3Model::BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const {
  if (!weights_.shared.has_value()) return;
  weights_.shared->units->BeginPlan(
      UnitsOf(step), next.has_value() ? std::optional(UnitsOf(*next).front()) : std::nullopt);
}

void Qwen3Model::EndStep() const {
  if (weights_.shared.has_value()) weights_.shared->units->EndPlan();
}

void Qwen3Model::Idle() const {
  if (weights_.shared.has_value()) weights_.shared->units->End();
}

void Qwen3Model::Unshard(int64_t stack, std::optional<int64_t> next) const {
  if (!weights_.shared.has_value()) return;
  weights_.shared->units->Unshard(UnitOf(stack),
                                  next.has_value() ? std::optional(UnitOf(*next)) : std::nullopt);
}

template <typename Use>
void Qwen3Model::ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_unit,
                           const Use& use) const {
  int64_t row = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t unit = first_unit + static_cast<int64_t>(i);
    const bool is_last = i + 1 == pieces.size();
    weights_.shared->units->Unshard(unit, is_last ? std::nullopt : std::optional(unit + 1));
    use(pieces[i], row);
    row += pieces[i].n();
  }
}

at::Tensor Qwen3Model::Embed(const PackedRows& rows) const {
  const int64_t first = part_.vocabulary.begin;
  at::Tensor x;
  if (weights_.shared.has_value()) {
    ForPieces(weights_.embedding, weights_.shared->first_of_embedding,
              [&](const BaseWeight& piece, int64_t row) {
                const at::Tensor found = piece.RowsOrZero(rows.tokens, first + row);
                x = x.defined() ? x.add_(found) : found;
              });
  } else if (tp_.is_alone()) {
    return weights_.embedding[0].Rows(rows.tokens);
  } else {
    x = weights_.embedding[0].RowsOrZero(rows.tokens, first);
  }
  tp_.Sum("embedding", x);
  return x;
}

at::Tensor Qwen3Model::ShareOnto(const at::Tensor& residual, const at::Tensor& x,
                                 const BaseWeight& w, const at::Tensor& bias) const {
  if (part_.place.index == 0) return BaseLinearOnto(residual, x, w, bias, weights_.arithmetic);
  return BaseLinear(x, w, /*bias=*/{}, weights_.arithmetic);
}

at::Tensor Qwen3Model::LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                    AttentionContext& attention) const {
  return Layer(layer, x, rows, attention, /*saved=*/nullptr, /*wants_output=*/true);
}

at::Tensor Qwen3Model::LayerForwardSaving(int64_t layer, const at::Tensor& x,
                                          const PackedRows& rows,
                                          std::unique_ptr<LayerSaved>* saved) const {
  PackedAttention attention(rows.cu_seqlens, attention_arithmetic_);
  auto layer_saved = std::make_unique<Saved>();
  at::Tensor y = Layer(layer, x, rows, attention, layer_saved.get(), /*wants_output=*/true);
  layer_saved->log_sums_tn = attention.log_sums();
  *saved = std::move(layer_saved);
  return y;
}

std::unique_ptr<LayerSaved> Qwen3Model::LayerRecompute(int64_t layer, const at::Tensor& x,
                                                       const PackedRows& rows) const {
  PackedAttention attention(rows.cu_seqlens, attention_arithmetic_);
  auto saved = std::make_unique<Saved>();
  Layer(layer, x, rows, attention, saved.get(), /*wants_output=*/false);
  saved->log_sums_tn = attention.log_sums();
  return saved;
}

at::Tensor Qwen3Model::Layer(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                             AttentionContext& attention, Saved* saved, bool wants_output) const {
  const LayerSpec& l = part_.local.layers[layer];
  const double eps = part_.local.rms_norm_eps;

  Unshard(l.qkv, l.gate_up);
  const at::Tensor normed_th = RmsNorm(x, weights_.vectors[l.attention_norm], eps);
  const at::Tensor qkv_tw =
      BaseLinear(normed_th, weights_.stacks[l.qkv], weights_.biases[l.qkv], weights_.arithmetic);
  const Qkv qkv = SplitQkv(qkv_tw, l.attention);
  AddLora(normed_th, rows.segments,
          {{RowOf(l.qkv), qkv.q}, {RowOf(l.qkv) + 1, qkv.k}, {RowOf(l.qkv) + 2, qkv.v}});
  const at::Tensor attn_tw = attention
                                 .NormRopeAttend(layer,
                                                 {SplitHeads(qkv.q, l.attention.head_dim),
                                                  SplitHeads(qkv.k, l.attention.head_dim)},
                                                 SplitHeads(qkv.v, l.attention.head_dim),
                                                 {.q_weight = weights_.vectors[l.q_norm],
                                                  .k_weight = weights_.vectors[l.k_norm],
                                                  .eps = eps},
                                                 rope_, rows.positions)
                                 .flatten(1);

  const at::Tensor mid_th = ShareOnto(x, attn_tw, weights_.stacks[l.o], weights_.biases[l.o]);
  AddLora(attn_tw, rows.segments, {{RowOf(l.o), mid_th}});
  tp_.Sum("output of attention", mid_th);

  Unshard(l.gate_up, wants_output ? std::optional(l.down) : std::nullopt);
  const at::Tensor mid_normed_th = RmsNorm(mid_th, weights_.vectors[l.mlp_norm], eps);
  const at::Tensor gate_up_tw =
      BaseLinear(mid_normed_th, weights_.stacks[l.gate_up], /*bias=*/{}, weights_.arithmetic);
  const at::Tensor gate_tw = gate_up_tw.narrow(1, 0, l.intermediate_size);
  const at::Tensor up_tw = gate_up_tw.narrow(1, l.intermediate_size, l.intermediate_size);
  AddLora(mid_normed_th, rows.segments,
          {{RowOf(l.gate_up), gate_tw}, {RowOf(l.gate_up) + 1, up_tw}});
  if (saved != nullptr) {
    saved->x_th = x;
    saved->qkv_tw = qkv_tw;
    saved->attn_tw = attn_tw;
    saved->mid_th = mid_th;
    saved->gate_up_tw = gate_up_tw;
  }
  if (!wants_output) return {};

  Unshard(l.down);
  const at::Tensor act_tw = SiluMul(gate_tw, up_tw);
  const at::Tensor out_th = ShareOnto(mid_th, act_tw, weights_.stacks[l.down], /*bias=*/{});
  AddLora(act_tw, rows.segments, {{RowOf(l.down), out_th}});
  tp_.Sum("output of the MLP", out_th);
  return out_th;
}

at::Tensor Qwen3Model::LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                                     std::unique_ptr<LayerSaved> saved,
                                     std::vector<AdapterGradients*>& gradients) const {
  auto& layer_saved = static_cast<Saved&>(*saved);
  const at::Tensor dmid_th = MlpBackward(layer, dy, rows, layer_saved, gradients);
  return AttentionBackward(layer, dmid_th, rows, layer_saved, gradients);
}

at::Tensor Qwen3Model::MlpBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                                   Saved& saved, std::vector<AdapterGradients*>& gradients) const {
  const LayerSpec& l = part_.local.layers[layer];
  const int64_t size = l.intermediate_size;
  const at::Tensor gate_tw = saved.gate_up_tw.narrow(1, 0, size);
  const at::Tensor up_tw = saved.gate_up_tw.narrow(1, size, size);

  Unshard(l.down, l.gate_up);
  const at::Tensor act_tw = SiluMul(gate_tw, up_tw);
  const at::Tensor dact_tw = BaseLinearBackward(dy, weights_.stacks[l.down], weights_.arithmetic);
  AddLoraBackward(act_tw, rows.segments, {{RowOf(l.down), dy}}, gradients, dact_tw);

  // Writes the gradients over their activations.
  SiluMulBackward(gate_tw, up_tw, dact_tw);
  const at::Tensor dgate_up_tw = std::move(saved.gate_up_tw);
  const at::Tensor& dgate_tw = gate_tw;
  const at::Tensor& dup_tw = up_tw;

  Unshard(l.gate_up, l.qkv);
  const at::Tensor normed_th =
      RmsNorm(saved.mid_th, weights_.vectors[l.mlp_norm], part_.local.rms_norm_eps);
  const at::Tensor dnormed_th =
      BaseLinearBackward(dgate_up_tw, weights_.stacks[l.gate_up], weights_.arithmetic);
  AddLoraBackward(normed_th, rows.segments,
                  {{RowOf(l.gate_up), dgate_tw}, {RowOf(l.gate_up) + 1, dup_tw}}, gradients,
                  dnormed_th);
  tp_.Sum("gradient of the MLP's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.mid_th, weights_.vectors[l.mlp_norm],
                             part_.local.rms_norm_eps, dnormed_th);
}

at::Tensor Qwen3Model::AttentionBackward(int64_t layer, const at::Tensor& dy,
                                         const PackedRows& rows, Saved& saved,
                                         std::vector<AdapterGradients*>& gradients) const {
  const LayerSpec& l = part_.local.layers[layer];
  const double eps = part_.local.rms_norm_eps;
  const Qkv qkv = SplitQkv(saved.qkv_tw, l.attention);
  const QkHeads raw = {SplitHeads(qkv.q, l.attention.head_dim),
                       SplitHeads(qkv.k, l.attention.head_dim)};
  const QkNormWeights norms = {
      .q_weight = weights_.vectors[l.q_norm], .k_weight = weights_.vectors[l.k_norm], .eps = eps};

  Unshard(l.qkv);
  const at::Tensor dattn_tw = BaseLinearBackward(dy, weights_.stacks[l.o], weights_.arithmetic);
  AddLoraBackward(saved.attn_tw, rows.segments, {{RowOf(l.o), dy}}, gradients, dattn_tw);
  const QkHeads normed = NormRope(raw, norms, rope_, rows.positions);
  const AttentionGradients d = CausalAttentionBackward(
      normed.q, normed.k, SplitHeads(qkv.v, l.attention.head_dim), rows.cu_seqlens,
      {.out = SplitHeads(saved.attn_tw, l.attention.head_dim), .log_sums = saved.log_sums_tn},
      SplitHeads(dattn_tw, l.attention.head_dim), attention_arithmetic_);

  NormRopeBackward(raw, norms, rope_, rows.positions, {d.dq, d.dk});
  CopyRows(d.dv.flatten(1), qkv.v);
  const at::Tensor dqkv_tw = std::move(saved.qkv_tw);
  const Qkv& dqkv = qkv;

  const at::Tensor normed_th = RmsNorm(saved.x_th, weights_.vectors[l.attention_norm], eps);
  const at::Tensor dnormed_th =
      BaseLinearBackward(dqkv_tw, weights_.stacks[l.qkv], weights_.arithmetic);
  AddLoraBackward(normed_th, rows.segments,
                  {{RowOf(l.qkv), dqkv.q}, {RowOf(l.qkv) + 1, dqkv.k}, {RowOf(l.qkv) + 2, dqkv.v}},
                  gradients, dnormed_th);
  tp_.Sum("gradient of attention's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.x_th, weights_.vectors[l.attention_norm], eps, dnormed_th);
}

at::Tensor Qwen3Model::FinalNorm(const at::Tensor& x) const {
  return RmsNorm(x, weights_.vectors[part_.whole.vectors->final_norm], part_.local.rms_norm_eps);
}

at::Tensor Qwen3Model::FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const {
  return RmsNormBackward(x, weights_.vectors[part_.whole.vectors->final_norm],
                         part_.local.rms_norm_eps, dy);
}

at::Tensor Qwen3Model::Logits(const at::Tensor& h, const std::vector<Segment>& segments) const {
  at::Tensor logits;
  if (weights_.shared.has_value()) {
    logits = at::empty({h.size(0), part_.local.vocab_size}, h.options());
    ForPieces(weights_.lm_head, weights_.shared->first_of_lm_head,
              [&](const BaseWeight& piece, int64_t row) {
                BaseLinearInto(h, piece, weights_.arithmetic, logits.narrow(1, row, piece.n()));
              });
  } else {
    logits = BaseLinear(h, weights_.lm_head[0], /*bias=*/{}, weights_.arithmetic);
  }
  AddLora(h, segments, {{part_.whole.linears->lm_head, logits}});
  // Padding columns are not tokens: sampling never selects them, and their gradient is zero.
  const Shard& own = part_.vocabulary;
  if (own.padding > 0) logits.narrow(1, own.size, own.padding).fill_(-INFINITY);
  return logits;
}

at::Tensor Qwen3Model::LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
                                      const std::vector<Segment>& segments,
                                      std::vector<AdapterGradients*>& gradients) const {
  at::Tensor dh;
  if (weights_.shared.has_value()) {
    dh = at::zeros_like(h);
    ForPieces(weights_.lm_head, weights_.shared->first_of_lm_head,
              [&](const BaseWeight& piece, int64_t row) {
                AddBaseLinearBackward(dlogits.narrow(1, row, piece.n()), piece, weights_.arithmetic,
                                      dh);
              });
  } else {
    dh = BaseLinearBackward(dlogits, weights_.lm_head[0], weights_.arithmetic);
  }
  AddLoraBackward(h, segments, {{part_.whole.linears->lm_head, dlogits}}, gradients, dh);
  return dh;
}

}  // namespace lathe::worker
