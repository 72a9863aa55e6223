// Mistral: Llama without biases, whose layers may all attend over a window. Source:
// arXiv:2310.06825.
#include <cstdint>
#include <vector>

#include "libs/common/status_macros.h"
#include "services/worker/models/families/families.h"

namespace lathe::worker {
namespace {

// Without layer_types, all layers attend over the window. With them, HF's AutoConfig takes the
// folder for a Ministral, which obeys them and differs in nothing else.
absl::StatusOr<std::vector<int64_t>> ReadMistralWindows(ConfigReader& config, int64_t num_layers) {
  if (config.Take("sliding_window").is_null()) {
    RETURN_IF_ERROR(config.ExpectEach("layer_types", "full_attention"));
    return std::vector<int64_t>(num_layers, 0);
  }
  ASSIGN_OR_RETURN(const int64_t window, config.PositiveInt("sliding_window"));
  return config.Windows(num_layers, window, [](int64_t /*layer*/) { return true; });
}

}  // namespace

absl::StatusOr<DecoderSpec> ReadMistral(ConfigReader& config) {
  config.AddDefaults({{"eos_token_id", 2}, {"num_key_value_heads", 8}, {"sliding_window", 4096}});
  RETURN_IF_ERROR(config.Expect("hidden_act", "silu"));
  ASSIGN_OR_RETURN(DenseShape shape, ReadDenseShape(config, "mistral"));
  ASSIGN_OR_RETURN(shape.rope, config.Rope({}, shape.max_position_embeddings));
  ASSIGN_OR_RETURN(shape.windows, ReadMistralWindows(config, shape.num_layers));
  shape.has_qk_norm = false;
  return DenseDecoder(shape);
}

}  // namespace lathe::worker
