// Llama 2 and 3, and SmolLM2: rope, grouped-query attention, gated silu MLP.
#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {

absl::StatusOr<DecoderSpec> ReadLlama(ConfigReader& config) {
  config.AddDefaults({{"eos_token_id", 2}});
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  // Says how the original checkpoint was sharded.
  config.Ignore({"pretraining_tp"});
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "llama"));
  ASSIGN_OR_RETURN(shape.rope, config.Rope({}, shape.max_position_embeddings));
  shape.has_qk_norm = false;
  ASSIGN_OR_RETURN(shape.has_qkv_bias, config.Flag("attention_bias"));
  shape.has_o_bias = shape.has_qkv_bias;
  ASSIGN_OR_RETURN(shape.has_mlp_bias, config.Flag("mlp_bias"));
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
