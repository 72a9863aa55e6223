#include "services/worker/models/decoder_layer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
#include "services/worker/models/packed_attention.h"

// Legend: t rows, h hidden size, w width of stacked q, k, v (or gate, up), n heads.
namespace lathe::worker {

// Activations of a layer that its backward step cannot recompute cheaply.
struct DecoderLayer::Saved : LayerSaved {
  at::Tensor x_th;         // layer input
  at::Tensor qkv_tw;       // before q/k norm and rope
  at::Tensor attn_tw;      // attention output, before o
  at::Tensor log_sums_tn;  // AttentionOutput::log_sums
  at::Tensor mid_th;       // after the attention residual
  at::Tensor gate_up_tw;   // before the activation
  // Inputs of the norms of outputs; undefined if there is none.
  at::Tensor attention_output_th;
  at::Tensor mlp_output_th;
};

DecoderLayer::DecoderLayer(const DecoderLayerContext& context, int64_t index)
    : context_(context),
      index_(index),
      spec_(context.part.local.layers[index]),
      eps_(context.part.local.rms_norm_eps),
      rope_(spec_.attention.rope == kNoRope ? nullptr : &context.ropes[spec_.attention.rope]),
      qkv_(context.part, context.weights, spec_.qkv),
      o_(context.part, context.weights, spec_.o),
      gate_up_(context.part, context.weights, spec_.gate_up),
      down_(context.part, context.weights, spec_.down) {}

std::vector<int64_t> DecoderLayer::UnitsOf(ModelStep::Kind kind) const {
  // To recompute, a step needs the MLP's output only for its norm.
  const bool needs_down = kind != ModelStep::Kind::kRecompute || spec_.mlp_output_norm != kNoRow;
  const int64_t last = needs_down ? down_.unit() : gate_up_.unit();
  std::vector<int64_t> units(last - qkv_.unit() + 1);
  std::iota(units.begin(), units.end(), qkv_.unit());
  if (kind == ModelStep::Kind::kBackward) std::reverse(units.begin(), units.end());
  return units;
}

void DecoderLayer::Unshard(const StackedLinear& linear, const StackedLinear* next) const {
  if (!context_.weights.shared.has_value()) return;
  context_.weights.shared->units->Unshard(
      linear.unit(), next == nullptr ? std::nullopt : std::optional(next->unit()));
}

at::Tensor DecoderLayer::SplitHeads(const at::Tensor& x_tw) const {
  return x_tw.view({x_tw.size(0), -1, spec_.attention.head_dim});
}

QkvHeads DecoderLayer::HeadsOf(const at::Tensor& qkv_tw) const {
  return {.qk = {SplitHeads(qkv_.Slice(qkv_tw, 0)), SplitHeads(qkv_.Slice(qkv_tw, 1))},
          .v = SplitHeads(qkv_.Slice(qkv_tw, 2))};
}

QkPreparation DecoderLayer::PreparationOf(const PackedRows& rows) const {
  QkPreparation preparation{.eps = eps_, .rope = rope_, .positions = rows.positions};
  if (spec_.attention.has_qk_norm) {
    preparation.q_norm = Vector(spec_.q_norm);
    preparation.k_norm = Vector(spec_.k_norm);
  }
  return preparation;
}

at::Tensor DecoderLayer::ForwardSaving(const at::Tensor& x, const PackedRows& rows,
                                       bool wants_output,
                                       std::unique_ptr<LayerSaved>* saved) const {
  PackedAttention attention(rows, context_.attention_arithmetic);
  auto layer_saved = std::make_unique<Saved>();
  at::Tensor y = Forward(x, rows, attention, layer_saved.get(), wants_output);
  layer_saved->log_sums_tn = attention.log_sums();
  *saved = std::move(layer_saved);
  return y;
}

at::Tensor DecoderLayer::Forward(const at::Tensor& x, const PackedRows& rows,
                                 AttentionContext& attention, Saved* saved,
                                 bool wants_output) const {
  const at::Tensor mid_th = Attend(x, rows, attention, saved);
  const bool needs_down = wants_output || spec_.mlp_output_norm != kNoRow;

  Unshard(gate_up_, needs_down ? &down_ : nullptr);
  const at::Tensor normed_th = RmsNorm(mid_th, Vector(spec_.mlp_norm), eps_, attention.dtype());
  at::Tensor act_tw;
  if (saved == nullptr) {
    act_tw = gate_up_.ForwardGated(spec_.activation, normed_th, rows.segments);
  } else {
    saved->mid_th = mid_th;
    saved->gate_up_tw = gate_up_.Forward(normed_th, rows.segments);
    if (!needs_down) return {};
    act_tw = GatedActivation(spec_.activation, gate_up_.Slice(saved->gate_up_tw, 0),
                             gate_up_.Slice(saved->gate_up_tw, 1));
  }

  Unshard(down_);
  return AddOutput("output of the MLP", mid_th, down_, act_tw, rows, spec_.mlp_output_norm,
                   saved == nullptr ? nullptr : &saved->mlp_output_th);
}

at::Tensor DecoderLayer::AddOutput(const char* what, const at::Tensor& residual,
                                   const StackedLinear& linear, const at::Tensor& x,
                                   const PackedRows& rows, int64_t norm, at::Tensor* saved) const {
  const bool has_norm = norm != kNoRow;
  const at::Tensor sum_th =
      linear.ForwardOnto(has_norm ? at::Tensor() : residual, x, rows.segments);
  context_.tp.Sum(what, sum_th);
  if (!has_norm) return sum_th;
  if (saved != nullptr) *saved = sum_th;
  return RmsNormOnto(residual, sum_th, Vector(norm), eps_);
}

at::Tensor DecoderLayer::OutputNormBackward(const at::Tensor& dy, int64_t norm,
                                            const at::Tensor& saved) const {
  return norm == kNoRow ? dy : RmsNormBackward(saved, Vector(norm), eps_, dy);
}

at::Tensor DecoderLayer::Attend(const at::Tensor& x, const PackedRows& rows,
                                AttentionContext& attention, Saved* saved) const {
  Unshard(qkv_, &gate_up_);
  const at::Tensor normed_th = RmsNorm(x, Vector(spec_.attention_norm), eps_, attention.dtype());
  const at::Tensor qkv_tw = qkv_.Forward(normed_th, rows.segments);
  const at::Tensor attn_tw =
      attention.Attend(index_, spec_.attention, HeadsOf(qkv_tw), PreparationOf(rows)).flatten(1);
  const at::Tensor mid_th =
      AddOutput("output of attention", x, o_, attn_tw, rows, spec_.attention_output_norm,
                saved == nullptr ? nullptr : &saved->attention_output_th);
  if (saved != nullptr) {
    saved->x_th = x;
    saved->qkv_tw = qkv_tw;
    saved->attn_tw = attn_tw;
  }
  return mid_th;
}

at::Tensor DecoderLayer::Backward(const at::Tensor& dy, const PackedRows& rows, LayerSaved& saved,
                                  std::vector<AdapterGradients*>& gradients) const {
  auto& layer_saved = static_cast<Saved&>(saved);
  const at::Tensor dmid_th = MlpBackward(dy, rows, layer_saved, gradients);
  return AttentionBackward(dmid_th, rows, layer_saved, gradients);
}

at::Tensor DecoderLayer::MlpBackward(const at::Tensor& dy, const PackedRows& rows, Saved& saved,
                                     std::vector<AdapterGradients*>& gradients) const {
  const at::Tensor gate_tw = gate_up_.Slice(saved.gate_up_tw, 0);
  const at::Tensor up_tw = gate_up_.Slice(saved.gate_up_tw, 1);

  Unshard(down_, &gate_up_);
  const at::Tensor act_tw = GatedActivation(spec_.activation, gate_tw, up_tw);
  const at::Tensor dout_th = OutputNormBackward(dy, spec_.mlp_output_norm, saved.mlp_output_th);
  const at::Tensor dact_tw =
      down_.Backward(act_tw, dout_th, rows.segments, gradients, act_tw.scalar_type());

  // Writes the gradients over their activations.
  GatedActivationBackward(spec_.activation, gate_tw, up_tw, dact_tw);
  const at::Tensor dgate_up_tw = std::move(saved.gate_up_tw);

  Unshard(gate_up_, &qkv_);
  const at::Tensor& norm = Vector(spec_.mlp_norm);
  const at::Tensor normed_th = RmsNorm(saved.mid_th, norm, eps_, dgate_up_tw.scalar_type());
  const at::Tensor dnormed_th = gate_up_.Backward(normed_th, dgate_up_tw, rows.segments, gradients);
  context_.tp.Sum("gradient of the MLP's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.mid_th, norm, eps_, dnormed_th);
}

at::Tensor DecoderLayer::AttentionBackward(const at::Tensor& dy, const PackedRows& rows,
                                           Saved& saved,
                                           std::vector<AdapterGradients*>& gradients) const {
  const QkvHeads raw = HeadsOf(saved.qkv_tw);
  const at::Tensor v_tw = qkv_.Slice(saved.qkv_tw, 2);
  const QkPreparation preparation = PreparationOf(rows);

  Unshard(qkv_);
  const at::Tensor dout_th =
      OutputNormBackward(dy, spec_.attention_output_norm, saved.attention_output_th);
  const at::Tensor dattn_tw =
      o_.Backward(saved.attn_tw, dout_th, rows.segments, gradients, saved.attn_tw.scalar_type());
  const QkHeads qk = PrepareQk(raw.qk, preparation);
  const AttentionGradients d =
      CausalAttentionBackward(spec_.attention, qk.q, qk.k, raw.v, rows.cu_seqlens,
                              {.out = SplitHeads(saved.attn_tw), .log_sums = saved.log_sums_tn},
                              SplitHeads(dattn_tw), context_.attention_arithmetic);

  PrepareQkBackward(raw.qk, preparation, {d.dq, d.dk});
  CopyRows(d.dv.flatten(1), v_tw);
  const at::Tensor dqkv_tw = std::move(saved.qkv_tw);

  const at::Tensor& norm = Vector(spec_.attention_norm);
  const at::Tensor normed_th = RmsNorm(saved.x_th, norm, eps_, dqkv_tw.scalar_type());
  const at::Tensor dnormed_th = qkv_.Backward(normed_th, dqkv_tw, rows.segments, gradients);
  context_.tp.Sum("gradient of attention's input", dnormed_th);
  return RmsNormBackwardOnto(dy, saved.x_th, norm, eps_, dnormed_th);
}

}  // namespace lathe::worker
