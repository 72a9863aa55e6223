// Gemma 3, text only: most layers attend over a window, outputs are normed, the embedding is
// scaled. Source: arXiv:2503.19786.
#include <cmath>

#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {
namespace {

// Layers that attend to all tokens and those that attend over a window have ropes of their own.
enum RopeIndex { kGlobalRope, kLocalRope };

absl::StatusOr<std::vector<RopeSpec>> ReadGemmaRopes(ConfigReader& config, int64_t max_positions) {
  std::vector<RopeSpec> ropes(2);
  ASSIGN_OR_RETURN(
      ropes[kGlobalRope],
      config.Rope({.layer_type = "full_attention", .default_theta = 1e6}, max_positions));
  ASSIGN_OR_RETURN(ropes[kLocalRope], config.Rope({.layer_type = "sliding_attention",
                                                   .scaling = nullptr,
                                                   .theta = "rope_local_base_freq",
                                                   .default_theta = 1e4},
                                                  max_positions));
  return ropes;
}

absl::StatusOr<std::vector<int64_t>> ReadGemmaWindows(ConfigReader& config, int64_t num_layers) {
  constexpr int64_t kDefaultPattern = 6;
  constexpr int64_t kMost = int64_t{1} << 31;
  ASSIGN_OR_RETURN(const int64_t window, config.PositiveInt("sliding_window"));
  ASSIGN_OR_RETURN(const int64_t pattern,
                   config.PositiveInt("sliding_window_pattern", kMost, kDefaultPattern));
  return config.Windows(num_layers, window,
                        [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

}  // namespace

absl::StatusOr<DecoderSpec> ReadGemma3(ConfigReader& config) {
  config.AddDefaults({{"eos_token_id", 1},
                      {"head_dim", 256},
                      {"num_key_value_heads", 4},
                      {"sliding_window", 4096},
                      {"tie_word_embeddings", true}});
  RETURN_IF_ERROR(config.Expect("hidden_activation", "gelu_pytorch_tanh"));
  RETURN_IF_ERROR(config.Expect("use_bidirectional_attention", false, /*may_be_absent=*/true));
  // The kind of Transformers' KV cache, and what layer_types was made from.
  config.Ignore({"cache_implementation", "_sliding_window_pattern"});
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "gemma3_text"));
  shape.has_output_norms = true;
  shape.activation = Activation::kGeluTanh;
  ASSIGN_OR_RETURN(shape.has_qkv_bias, config.Flag("attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  ASSIGN_OR_RETURN(shape.windows, ReadGemmaWindows(config, shape.num_layers));
  ASSIGN_OR_RETURN(const double scalar, config.PositiveDouble("query_pre_attn_scalar"));

  DecoderSpec spec = DenseDecoder(shape);
  ASSIGN_OR_RETURN(spec.ropes, ReadGemmaRopes(config, shape.max_position_embeddings));
  spec.norm_offset = 1;
  spec.embedding_scale = std::sqrt(static_cast<double>(shape.hidden_size));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale = 1 / std::sqrt(scalar);
    layer.attention.rope = layer.attention.window == 0 ? kGlobalRope : kLocalRope;
  }
  return spec;
}

}  // namespace lathe::worker
