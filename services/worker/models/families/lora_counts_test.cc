// Compares the adapters that follow from a family's table with those of the hosted service: the
// numbers of parameters per rank that tinker-cookbook 0.6.1 publishes (hyperparam_utils.py).
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "services/worker/models/families/families.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

// The fields of a published config.json that determine the sizes of tensors.
struct HostedModel {
  std::string name;
  std::string family;
  int64_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, vocab_size;
  int64_t mlp, attention, unembedding;  // parameters per rank
};

const HostedModel kHosted[] = {
    {"Llama-3.2-1B", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 491520, 212992, 130304},
    {"Llama-3.1-8B", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 1769472, 851968, 132352},
    {"Llama-3.1-70B", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 8847360, 4096000, 136448},
    {"Qwen3-4B", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1327104, 737280, 154496},
    {"Qwen3-8B", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1769472, 958464, 156032},
    {"Qwen3-32B", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 5898240, 2490368, 157056}};

DecoderSpec SpecOf(const HostedModel& model) {
  const nlohmann::json config = {{"model_type", model.family},
                                 {"hidden_act", "silu"},
                                 {"num_hidden_layers", model.num_layers},
                                 {"hidden_size", model.hidden_size},
                                 {"intermediate_size", model.intermediate_size},
                                 {"num_attention_heads", model.num_heads},
                                 {"num_key_value_heads", model.num_kv_heads},
                                 {"head_dim", model.head_dim},
                                 {"vocab_size", model.vocab_size},
                                 {"max_position_embeddings", 131072},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 5e5}};
  const TempDir folder;
  std::ofstream(folder / "config.json") << config.dump();
  return ReadModelConfig(folder.path()).value();
}

}  // namespace

TEST_CASE("LinearTable: adapters have as many parameters as those of the hosted service",
          "[models]") {
  for (const HostedModel& model : kHosted) {
    INFO(model.name);
    const DecoderSpec spec = SpecOf(model);
    std::map<LoraFamily, int64_t> counts;
    for (const LinearSpec& linear : spec.linears->rows) {
      counts[linear.group] += linear.in_features + linear.out_features;
    }
    CHECK(counts[LoraFamily::kMlp] == model.mlp);
    CHECK(counts[LoraFamily::kAttention] == model.attention);
    CHECK(counts[LoraFamily::kUnembedding] == model.unembedding);
  }
}

}  // namespace lathe::worker
