#include "services/worker/models/decoder.h"

#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include <absl/strings/str_format.h>

#include "libs/common/status_macros.h"
#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/layers/base_linear.h"
#include "services/worker/layers/norms.h"
#include "services/worker/lora/lora_linear.h"

namespace lathe::worker {
namespace {

// Returns fp32 for matrices that are not bf16. For bf16 matrices: on a CPU the arithmetic of
// products with the weights; on a GPU bf16 if there are kernels for this shape.
MatmulArithmetic AttentionArithmetic(const DecoderSpec& spec, const DecoderWeights& weights) {
  if (weights.embedding[0].dtype() != at::kBFloat16) return MatmulArithmetic::kFp32;
  if (weights.embedding[0].device().is_cpu()) return weights.arithmetic;
  const AttentionSpec& attention = spec.layers[0].attention;
  const PagedShape shape = {.num_heads = attention.num_heads,
                            .num_kv_heads = attention.num_kv_heads,
                            .head_dim = attention.head_dim};
  return HasPagedAttention(shape) ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
}

std::vector<RopeTable> MakeRopes(const DecoderSpec& spec, at::Device device) {
  std::vector<RopeTable> tables;
  for (const RopeSpec& rope : spec.ropes) {
    tables.emplace_back(rope, spec.layers[0].attention.head_dim, spec.max_position_embeddings,
                        device);
  }
  return tables;
}

absl::Status Unsupported(const char* field, double value, double supported, int64_t layer) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "config.json: %s is %g in layer %d, supported is %g", field, value, layer, supported));
}

// The KV cache has the same form in all layers, and so do ranks' parts of keys and values.
absl::Status CheckLayer(const DecoderSpec& spec, int64_t index) {
  const LayerSpec& layer = spec.layers[index];
  const AttentionSpec& attention = layer.attention;
  const AttentionSpec& first = spec.layers[0].attention;
  RETURN_IF_ERROR(CheckAttention(attention));
  const std::tuple<const char*, double, double> numbers[] = {
      {"num_attention_heads", attention.num_heads, first.num_heads},
      {"num_key_value_heads", attention.num_kv_heads, first.num_kv_heads},
      {"head_dim", attention.head_dim, first.head_dim},
  };
  for (const auto& [field, value, supported] : numbers) {
    if (value != supported) return Unsupported(field, value, supported, index);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSupported(const DecoderSpec& spec) {
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    RETURN_IF_ERROR(CheckLayer(spec, layer));
  }
  return absl::OkStatus();
}

namespace {

// Torch may otherwise add partial sums of bf16 products in bf16.
void SumInFp32(at::Device device) {
  if (!device.is_cpu()) {
    at::globalContext().setAllowBF16ReductionCuBLAS(false, /*allow_splitk=*/true);
  }
}

}  // namespace

Decoder::Decoder(ModelPart part, DecoderWeights weights, RankGroup tp)
    : part_(std::move(part)),
      tp_(tp),
      weights_(std::move(weights)),
      ropes_(MakeRopes(part_.local, weights_.embedding[0].device())),
      context_{.part = part_,
               .weights = weights_,
               .tp = tp_,
               .ropes = ropes_,
               .attention_arithmetic = AttentionArithmetic(part_.local, weights_)} {
  SumInFp32(device());
  layers_.reserve(part_.local.layers.size());
  for (int64_t layer = 0; layer < part_.local.num_layers(); ++layer) {
    layers_.emplace_back(context_, layer);
  }
}

int64_t Decoder::WeightBytes() const {
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

std::vector<int64_t> Decoder::UnitsOf(const ModelStep& step) const {
  const bool is_embed = step.kind == ModelStep::Kind::kEmbed;
  if (!is_embed && step.kind != ModelStep::Kind::kHead) {
    return layers_[step.layer].UnitsOf(step.kind);
  }
  std::vector<int64_t> units((is_embed ? weights_.embedding : weights_.lm_head).size());
  std::iota(units.begin(), units.end(),
            is_embed ? weights_.shared->first_of_embedding : weights_.shared->first_of_lm_head);
  return units;
}

void Decoder::BeginStep(const ModelStep& step, const std::optional<ModelStep>& next) const {
  if (!weights_.shared.has_value()) return;
  weights_.shared->units->BeginPlan(
      UnitsOf(step), next.has_value() ? std::optional(UnitsOf(*next).front()) : std::nullopt);
}

void Decoder::EndStep() const {
  if (weights_.shared.has_value()) weights_.shared->units->EndPlan();
}

void Decoder::Idle() const {
  if (weights_.shared.has_value()) weights_.shared->units->End();
}

template <typename Use>
void Decoder::ForPieces(const std::vector<BaseWeight>& pieces, int64_t first_unit,
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

at::Tensor Decoder::Embed(const PackedRows& rows) const {
  at::Tensor x = EmbedRows(rows);
  if (part_.whole.embedding_scale != 1) x.mul_(part_.whole.embedding_scale);
  return x;
}

at::Tensor Decoder::EmbedRows(const PackedRows& rows) const {
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

at::Tensor Decoder::LayerForward(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                 AttentionContext& attention) const {
  return layers_[layer].Forward(x, rows, attention, /*saved=*/nullptr, /*wants_output=*/true);
}

at::Tensor Decoder::LayerForwardSaving(int64_t layer, const at::Tensor& x, const PackedRows& rows,
                                       std::unique_ptr<LayerSaved>* saved) const {
  return layers_[layer].ForwardSaving(x, rows, /*wants_output=*/true, saved);
}

std::unique_ptr<LayerSaved> Decoder::LayerRecompute(int64_t layer, const at::Tensor& x,
                                                    const PackedRows& rows) const {
  std::unique_ptr<LayerSaved> saved;
  layers_[layer].ForwardSaving(x, rows, /*wants_output=*/false, &saved);
  return saved;
}

at::Tensor Decoder::LayerBackward(int64_t layer, const at::Tensor& dy, const PackedRows& rows,
                                  std::unique_ptr<LayerSaved> saved,
                                  std::vector<AdapterGradients*>& gradients) const {
  return layers_[layer].Backward(dy, rows, *saved, gradients);
}

at::Tensor Decoder::FinalNorm(const at::Tensor& x) const {
  return RmsNorm(x, final_norm(), part_.local.rms_norm_eps);
}

at::Tensor Decoder::FinalNormBackward(const at::Tensor& x, const at::Tensor& dy) const {
  return RmsNormBackward(x, final_norm(), part_.local.rms_norm_eps, dy);
}

at::Tensor Decoder::Logits(const at::Tensor& h, const std::vector<Segment>& segments) const {
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
  AddLora(h, segments, {{lm_head_row(), logits}});
  // Padding columns are not tokens: sampling never selects them, and their gradient is zero.
  const Shard& own = part_.vocabulary;
  if (own.padding > 0) logits.narrow(1, own.size, own.padding).fill_(-INFINITY);
  return logits;
}

at::Tensor Decoder::LogitsBackward(const at::Tensor& h, const at::Tensor& dlogits,
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
  AddLoraBackward(h, segments, {{lm_head_row(), dlogits}}, gradients, dh);
  return dh;
}

}  // namespace lathe::worker
