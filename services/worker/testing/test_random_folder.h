// A Qwen3 folder of any shape with random numbers, for tests of sharding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "services/worker/testing/test_model_folder.h"

namespace lathe::worker {

struct RandomFolder {
  int64_t num_layers = 2;
  int64_t hidden_size = 24;
  int64_t intermediate_size = 40;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 8;
  int64_t vocab_size = 61;
  bool is_tied = true;
  bool has_bias = false;
  at::ScalarType dtype = at::kFloat;
  uint64_t seed = 3;
};

inline nlohmann::json ConfigOf(const RandomFolder& f) {
  nlohmann::json config = SmallConfig();
  config.update({{"num_hidden_layers", f.num_layers},
                 {"hidden_size", f.hidden_size},
                 {"intermediate_size", f.intermediate_size},
                 {"num_attention_heads", f.num_heads},
                 {"num_key_value_heads", f.num_kv_heads},
                 {"head_dim", f.head_dim},
                 {"vocab_size", f.vocab_size},
                 {"max_position_embeddings", 512},
                 {"attention_bias", f.has_bias},
                 {"tie_word_embeddings", f.is_tied}});
  return config;
}

// Writes the same numbers for the same arguments.
inline void WriteRandomFolder(const std::filesystem::path& folder, const RandomFolder& f) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(f.seed);
  const int64_t h = f.hidden_size;
  const int64_t q = f.num_heads * f.head_dim;
  const int64_t kv = f.num_kv_heads * f.head_dim;
  const int64_t mlp = f.intermediate_size;
  std::map<std::string, at::Tensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, double mean) {
    const at::Tensor x = at::randn(shape, generator, at::kFloat).mul_(0.25).add_(mean);
    tensors[name] = x.to(f.dtype);
  };
  add("model.embed_tokens.weight", {f.vocab_size, h}, 0);
  if (!f.is_tied) add("lm_head.weight", {f.vocab_size, h}, 0);
  add("model.norm.weight", {h}, 1);
  for (int64_t layer = 0; layer < f.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.";
    add(prefix + "input_layernorm.weight", {h}, 1);
    add(prefix + "post_attention_layernorm.weight", {h}, 1);
    for (const auto& [name, size] :
         {std::pair("q_proj", q), std::pair("k_proj", kv), std::pair("v_proj", kv)}) {
      add(attention + name + ".weight", {size, h}, 0);
      if (f.has_bias) add(attention + name + ".bias", {size}, 0);
    }
    add(attention + "o_proj.weight", {h, q}, 0);
    if (f.has_bias) add(attention + "o_proj.bias", {h}, 0);
    add(attention + "q_norm.weight", {f.head_dim}, 1);
    add(attention + "k_norm.weight", {f.head_dim}, 1);
    add(prefix + "mlp.gate_proj.weight", {mlp, h}, 0);
    add(prefix + "mlp.up_proj.weight", {mlp, h}, 0);
    add(prefix + "mlp.down_proj.weight", {h, mlp}, 0);
  }
  WriteModelFolder(folder, tensors, ConfigOf(f));
}

}  // namespace lathe::worker
