// Qwen2 and Qwen2.5: Llama with biases of queries, keys and values.
#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {

absl::StatusOr<DecoderSpec> ReadQwen2(ConfigReader& config) {
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "qwen2"));
  ASSIGN_OR_RETURN(shape.rope, config.Rope({}, shape.max_position_embeddings));
  shape.has_qk_norm = false;
  shape.has_qkv_bias = true;
  ASSIGN_OR_RETURN(shape.windows, ReadQwenWindows(config, shape.num_layers));
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
