#include "services/worker/models/qwen3/model.h"

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

Qkv SplitQkv(const at::Tensor& qkv_tw, const ModelSpec& spec) {
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  return {qkv_tw.narrow(1, 0, q_size), qkv_tw.narrow(1, q_size, kv_size),
          qkv_tw.narrow(1, q_size + kv_size, kv_size)};
}

// Returns fp32 for matrices that are not bf16. For bf16 matrices: on a CPU the arithmetic of
// products with the weights; on a GPU bf16 if there are kernels for this shape.
MatmulArithmetic AttentionArithmetic(const ModelSpec& spec, const Qwen3Weights& weights) {
  if (weights.embedding[0].dtype() != at::kBFloat16) return MatmulArithmetic::kFp32;
  if (weights.embedding[0].device().is_cpu()) return weights.arithmetic;
  const PagedShape shape = {
      .num_heads = spec.num_heads, .num_kv_heads = spec.num_kv_heads, .head_dim = spec.head_dim};
  return HasPagedAttention(shape) ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
}

at::Tensor SplitHeads(const at::Tensor& x_tw, int64_t head_dim) {
  return x_tw.view({x_tw.size(0), -1, head_dim});
}

}  // namespace

Qwen3Model::Qwen3Model(ModelPart part, Qwen3Weights weights, RankGroup tp)
    : part_(std::move(part)),
      tp_(tp),
      weights_(std::move(weights)),
      attention_arithmetic_(AttentionArithmetic(part_.local, weights_)),
      rope_(part_.local.head_dim, part_.local.max_position_embeddings, part_.local.rope_theta,
            weights_.embedding[0].device()) {}

int64_t Qwen3Model::WeightBytes() const {
  auto sum = static_cast<int64_t>(weights_.final_norm.nbytes());
  for (const Qwen3LayerWeights& w : weights_.layers) {
    for (const at::Tensor* vector :
         {&w.input_norm, &w.qkv_bias, &w.q_norm, &w.k_norm, &w.o_bias, &w.post_norm}) {
      if (vector->defined()) sum += static_cast<int64_t>(vector->nbytes());
    }
  }
  if (weights_.shared.has_value()) return sum + weights_.shared->blocks->NumBytes();
  const BaseWeight& embedding = weights_.embedding[0];
  const BaseWeight& lm_head = weights_.lm_head[0];
  sum += embedding.NumBytes() + (lm_head.SharesMemoryWith(embedding) ? 0 : lm_head.NumBytes());
  for (const Qwen3LayerWeights& w : weights_.layers) {
    for (const BaseWeight* matrix : {&w.qkv, &w.o, &w.gate_up, &w.down}) sum += matrix->NumBytes();
  }
  return sum;
}

std::vector<int64_t> Qwen3Model::BlocksOf(const ModelStep& step) const {
  const Qwen3Blocks& shared = *weights_.shared;
  const auto pieces = [](int64_t first, size_t size) {
    std::vector<int64_t> blocks(size);
    std::iota(blocks.begin(), blocks.end(), first);
    return blocks;
  };
  const auto of = [&](LayerBlock block) { return Qwen3Blocks::Of(step.layer, block); };
  const int64_t attention = of(LayerBlock::kAttention);
  const int64_t gate_up = of(LayerBlock::kGateUp);
  const int64_t down = of(LayerBlock::kDown);
  switch (step.kind) {
    case ModelStep::Kind::kEmbed:
      return pieces(shared.first_of_embedding, weights_.embedding.size());
    case ModelStep::Kind::kForward:
      return {attention, gate_up, down};
    case ModelStep::Kind::kRecompute:
      return {attention, gate_up};
    case ModelStep::Kind::kBackward:
      return {down, gate_up, attention};
    case ModelStep::Kind::kHead:
      return pieces(shared.first_of_lm_head, weights_.lm_head.size());
  }
  return {};
}

void Qwen3Model::BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const {
  if (!weights_.shared.has_value()) return;
  weights_.shared->blocks->BeginPlan(
      BlocksOf(step), next.has_value() ? std::optional(BlocksOf(*next).front()) : std::nullopt);
}

void Qwen3Model::EndStep() const {
  if (weights_.shared.has_value()) weights_.shared->blocks->EndPlan();
}

void Qwen3Model::Idle() const {
  if (weights_.shared.has_value()) weights_.shared->blocks->End();
}

void Qwen3Model::Unshard(int64_t layer, LayerBlock block, std::optional<LayerBlock> next) const {
  if (!weights_.shared.has_value()) return;
  weights_.shared->blocks->Unshard(
      Qwen3Blocks::Of(layer, block),
      next.has_value() ? std::optional(Qwen3Blocks::Of(layer, *next)) : std::nullopt);
}

template <typename Use>
void Qwen3Model::ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_block,
                           const Use& use) const {
  int64_t row = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t block = first_block + static_cast<int64_t>(i);
    const bool is_last = i + 1 == pieces.size();
    weights_.shared->blocks->Unshard(block, is_last ? std::nullopt : std::optional(block + 1));
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
  const Qwen3LayerWeights& w = weights_.layers[layer];
  const double eps = part_.local.rms_norm_eps;

  Unshard(layer, LayerBlock::kAttention, LayerBlock::kGateUp);
  const at::Tensor normed_th = RmsNorm(x, w.input_norm, eps);
  const at::Tensor qkv_tw = BaseLinear(normed_th, w.qkv, w.qkv_bias, weights_.arithmetic);
  const Qkv qkv = SplitQkv(qkv_tw, part_.local);
  AddLora(normed_th, rows.segments,
          {{{layer, LoraTarget::kQ}, qkv.q},
           {{layer, LoraTarget::kK}, qkv.k},
           {{layer, LoraTarget::kV}, qkv.v}});
  const at::Tensor attn_tw =
      attention
          .NormRopeAttend(
              layer,
              {SplitHeads(qkv.q, part_.local.head_dim), SplitHeads(qkv.k, part_.local.head_dim)},
              SplitHeads(qkv.v, part_.local.head_dim),
              {.q_weight = w.q_norm, .k_weight = w.k_norm, .eps = eps}, rope_, rows.positions)
          .flatten(1);

  const at::Tensor mid_th = ShareOnto(x, attn_tw, w.o, w.o_bias);
  AddLora(attn_tw, rows.segments, {{{layer, LoraTarget::kO}, mid_th}});
  tp_.Sum("output of attention", mid_th);

  Unshard(layer, LayerBlock::kGateUp,
          wants_output ? std::optional(LayerBlock::kDown) : std::nullopt);
  const at::Tensor mid_normed_th = RmsNorm(mid_th, w.post_norm, eps);
  const at::Tensor gate_up_tw =
      BaseLinear(mid_normed_th, w.gate_up, /*bias=*/{}, weights_.arithmetic);
  const at::Tensor gate_tw = gate_up_tw.narrow(1, 0, part_.local.intermediate_size);
  const at::Tensor up_tw =
      gate_up_tw.narrow(1, part_.local.intermediate_size, part_.local.intermediate_size);
  AddLora(mid_normed_th, rows.segments,
          {{{layer, LoraTarget::kGate}, gate_tw}, {{layer, LoraTarget::kUp}, up_tw}});
  if (saved != nullptr) {
    saved->x_th = x;
    saved->qkv_tw = qkv_tw;
    saved->attn_tw = attn_tw;
    saved->mid_th = mid_th;
    saved->gate_up_tw = gate_up_tw;
  }
  if (!wants_output) return {};

  Unshard(layer, LayerBlock::kDown);
  const at::Tensor act_tw = SiluMul(gate_tw, up_tw);
  const at::Tensor out_th = ShareOnto(mid_th, act_tw, w.down, /*bias=*/{});
  AddLora(act_tw, rows.segments, {{{layer, LoraTarget::kDown}, out_th}});
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
  const Qwen3LayerWeights& w = weights_.layers[layer];
  const int64_t size = part_.local.intermediate_size;
  const at::Tensor gate_tw = saved.gate_up_tw.narrow(1, 0, size);
  const at::Tensor up_tw = saved.gate_up_tw.narrow(1, size, size);

  Unshard(layer, LayerBlock::kDown, LayerBlock::kGateUp);
  const at::Tensor act_tw = SiluMul(gate_tw, up_tw);
  const at::Tensor dact_tw = BaseLinearBackward(dy, w.down, weights_.arithmetic);
  AddLoraBackward(act_tw, rows.segments, {{{layer, LoraTarget::kDown}, dy}}, gradients, dact_tw);

  // Writes the gradients over their activations.
  SiluMulBackward(gate_tw, up_tw, dact_tw);
  const at::Tensor dgate_up_tw = std::move(saved.gate_up_tw);
  const at::Tensor& dgate_tw = gate_tw;
  const at::Tensor& dup_tw = up_tw;

  Unshard(layer, LayerBlock::kGateUp, LayerBlock::kAttention);
  const at::Tensor normed_th = RmsNorm(saved.mid_th, w.post_norm, part_.local.rms_norm_eps);
  const at::Tensor dnormed_th = BaseLinearBackward(dgate_up_tw, w.gate_up, weights_.arithmetic);
  AddLoraBackward(normed_th, rows.segments,
                  {{{layer, LoraTarget::kGate}, dgate_tw}, {{layer, LoraTarget::kUp}, dup_tw}},
                  gradients, dnormed_th);
  tp_.Sum("gradient of the MLP's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.mid_th, w.post_norm, part_.local.rms_norm_eps, dnormed_th);
}

at::Tensor Qwen3Model::AttentionBackward(int64_t layer, const at::Tensor& dy,
                                         const PackedRows& rows, Saved& saved,
                                         std::vector<AdapterGradients*>& gradients) const {
  const Qwen3LayerWeights& w = weights_.layers[layer];
  const double eps = part_.local.rms_norm_eps;
  const Qkv qkv = SplitQkv(saved.qkv_tw, part_.local);
  const QkHeads raw = {SplitHeads(qkv.q, part_.local.head_dim),
                       SplitHeads(qkv.k, part_.local.head_dim)};
  const QkNormWeights norms = {.q_weight = w.q_norm, .k_weight = w.k_norm, .eps = eps};

  Unshard(layer, LayerBlock::kAttention);
  const at::Tensor dattn_tw = BaseLinearBackward(dy, w.o, weights_.arithmetic);
  AddLoraBackward(saved.attn_tw, rows.segments, {{{layer, LoraTarget::kO}, dy}}, gradients,
                  dattn_tw);
  const QkHeads normed = NormRope(raw, norms, rope_, rows.positions);
  const AttentionGradients d = CausalAttentionBackward(
      normed.q, normed.k, SplitHeads(qkv.v, part_.local.head_dim), rows.cu_seqlens,
      {.out = SplitHeads(saved.attn_tw, part_.local.head_dim), .log_sums = saved.log_sums_tn},
      SplitHeads(dattn_tw, part_.local.head_dim), attention_arithmetic_);

  NormRopeBackward(raw, norms, rope_, rows.positions, {d.dq, d.dk});
  CopyRows(d.dv.flatten(1), qkv.v);
  const at::Tensor dqkv_tw = std::move(saved.qkv_tw);
  const Qkv& dqkv = qkv;

  const at::Tensor normed_th = RmsNorm(saved.x_th, w.input_norm, eps);
  const at::Tensor dnormed_th = BaseLinearBackward(dqkv_tw, w.qkv, weights_.arithmetic);
  AddLoraBackward(normed_th, rows.segments,
                  {{{layer, LoraTarget::kQ}, dqkv.q},
                   {{layer, LoraTarget::kK}, dqkv.k},
                   {{layer, LoraTarget::kV}, dqkv.v}},
                  gradients, dnormed_th);
  tp_.Sum("gradient of attention's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.x_th, w.input_norm, eps, dnormed_th);
}

at::Tensor Qwen3Model::FinalNorm(const at::Tensor& x) const {
  return RmsNorm(x, weights_.final_norm, part_.local.rms_norm_eps);
}

at::Tensor Qwen3Model::FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const {
  return RmsNormBackward(x, weights_.final_norm, part_.local.rms_norm_eps, dy);
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
  AddLora(h, segments, {{{LoraSlot::kUnembed}, logits}});
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
  AddLoraBackward(h, segments, {{{LoraSlot::kUnembed}, dlogits}}, gradients, dh);
  return dh;
}

}  // namespace lathe::worker
