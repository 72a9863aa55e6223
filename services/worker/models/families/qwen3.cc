// Qwen3 dense: normed queries and keys, rope, grouped-query attention, gated silu MLP.
#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {

absl::StatusOr<DecoderSpec> ReadQwen3(ConfigReader& config) {
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "qwen3"));
  ASSIGN_OR_RETURN(shape.rope, config.Rope({}, shape.max_position_embeddings));
  ASSIGN_OR_RETURN(shape.has_qkv_bias, config.Flag("attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  ASSIGN_OR_RETURN(shape.windows, ReadQwenWindows(config, shape.num_layers));
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
