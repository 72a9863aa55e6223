// Qwen2, Qwen2.5 and Qwen3, dense: rope, grouped-query attention, gated silu MLP. Qwen2 has biases
// of queries, keys and values; Qwen3 norms queries and keys.
#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {
namespace {

// With use_sliding_window, the layers from max_window_layers on attend over a window.
absl::StatusOr<std::vector<int64_t>> ReadQwenWindows(ConfigReader& config, int64_t num_layers) {
  ASSIGN_OR_RETURN(const bool is_on, config.Flag("use_sliding_window"));
  if (!is_on) {
    RETURN_IF_ERROR(config.ExpectEach("layer_types", "full_attention"));
    config.Ignore({"max_window_layers", "sliding_window"});
    return std::vector<int64_t>(num_layers, 0);
  }
  ASSIGN_OR_RETURN(const int64_t window, config.PositiveInt("sliding_window"));
  const nlohmann::json first = config.Take("max_window_layers");
  if (!first.is_number_unsigned()) {
    return config.Unsupported("max_window_layers", first, "an integer from 0 on");
  }
  return config.Windows(num_layers, window,
                        [&](int64_t layer) { return layer >= first.get<int64_t>(); });
}

absl::StatusOr<DenseShape> ReadQwenShape(ConfigReader& config, const char* family) {
  config.AddDefaults({{"num_key_value_heads", 32}});
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, family));
  ASSIGN_OR_RETURN(shape.rope, config.Rope({}, shape.max_position_embeddings));
  ASSIGN_OR_RETURN(shape.windows, ReadQwenWindows(config, shape.num_layers));
  return shape;
}

}  // namespace

absl::StatusOr<DecoderSpec> ReadQwen2(ConfigReader& config) {
  ASSIGN_OR_RETURN(DenseShape shape, ReadQwenShape(config, "qwen2"));
  shape.has_qk_norm = false;
  shape.has_qkv_bias = true;
  return DenseDecoder(shape);
}

absl::StatusOr<DecoderSpec> ReadQwen3(ConfigReader& config) {
  ASSIGN_OR_RETURN(DenseShape shape, ReadQwenShape(config, "qwen3"));
  ASSIGN_OR_RETURN(shape.has_qkv_bias, config.Flag("attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
