// Qwen3 dense: normed queries and keys, rope, grouped-query attention, gated silu MLP.
#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {

absl::StatusOr<DecoderSpec> ReadQwen3(ConfigReader& config) {
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  RETURN_IF_ERROR(config.Expect("use_sliding_window", false, /*may_be_absent=*/true));
  RETURN_IF_ERROR(config.ExpectEach("layer_types", "full_attention"));
  config.Ignore({"max_window_layers", "sliding_window"});  // sliding windows are off
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "qwen3"));
  ASSIGN_OR_RETURN(shape.head_dim, config.PositiveInt("head_dim"));
  if (shape.head_dim % 2 != 0) {
    return config.Unsupported("head_dim", shape.head_dim, "an even number, for rope");
  }
  ASSIGN_OR_RETURN(shape.has_qkv_bias, config.Flag("attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
