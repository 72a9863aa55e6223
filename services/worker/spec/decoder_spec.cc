#include "services/worker/spec/decoder_spec.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

namespace lathe::worker {
namespace {

std::string Exact(double number) { return absl::StrFormat("%.17g", number); }

std::string TextOf(const RopeSpec& r) {
  return absl::StrCat(static_cast<int>(r.type), ",", Exact(r.theta), ",", Exact(r.factor), ",",
                      r.original_max_position_embeddings, ",", Exact(r.low_freq_factor), ",",
                      Exact(r.high_freq_factor), ",", Exact(r.beta_fast), ",", Exact(r.beta_slow),
                      ",", r.truncate, ",", Exact(r.attention_factor));
}

std::string TextOf(const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  return absl::StrCat(a.num_heads, ",", a.num_kv_heads, ",", a.head_dim, ",", Exact(a.scale), ",",
                      a.window, ",", a.rope, ",", Exact(a.soft_cap), ",", layer.intermediate_size,
                      ",", static_cast<int>(layer.activation));
}

// A layer of the first families, with the sizes of `layer`.
LayerSpec Plain(const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  return {.attention = {.num_heads = a.num_heads,
                        .num_kv_heads = a.num_kv_heads,
                        .head_dim = a.head_dim,
                        .scale = ScaleOf(a.head_dim),
                        .rope = 0},
          .intermediate_size = layer.intermediate_size};
}

// Returns the fields that differ from those of the first families; empty for those families. The
// tables need no text: the content hash covers the names and shapes of tensors.
std::string Additions(const DecoderSpec& s) {
  std::string text;
  if (s.norm_offset != 0) absl::StrAppend(&text, ";norm_offset=", Exact(s.norm_offset));
  if (s.embedding_scale != 1) absl::StrAppend(&text, ";embedding_scale=", Exact(s.embedding_scale));
  for (size_t i = 0; i < s.ropes.size(); ++i) {
    const RopeSpec& rope = s.ropes[i];
    if (i > 0 || rope != RopeSpec{.theta = rope.theta}) {
      absl::StrAppend(&text, ";rope", i, "=", TextOf(rope));
    }
  }
  const std::string plain = TextOf(Plain(s.layers.front()));
  for (size_t layer = 0; layer < s.layers.size(); ++layer) {
    const std::string own = TextOf(s.layers[layer]);
    if (own != plain) absl::StrAppend(&text, ";layer", layer, "=", own);
  }
  return text;
}

}  // namespace

std::string CanonicalText(const DecoderSpec& s) {
  const LayerSpec& first = s.layers.front();
  return absl::StrCat(
      "family=", s.family, ";layers=", s.num_layers(), ";hidden=", s.hidden_size,
      ";intermediate=", first.intermediate_size, ";heads=", first.attention.num_heads,
      ";kv_heads=", first.attention.num_kv_heads, ";head_dim=", first.attention.head_dim,
      ";vocab=", s.vocab_size, ";positions=", s.max_position_embeddings,
      ";eps=", Exact(s.rms_norm_eps), ";theta=", Exact(s.ropes.front().theta),
      ";tied=", s.tie_word_embeddings, ";bias=", s.linears->rows.front().has_bias,
      ";eos=", absl::StrJoin(s.eos_token_ids, ","), Additions(s));
}

}  // namespace lathe::worker
