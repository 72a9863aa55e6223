// A Qwen3 folder with one tiny layer, for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline nlohmann::json SmallConfig() {
  return {{"model_type", "qwen3"},
          {"hidden_act", "silu"},
          {"num_hidden_layers", 1},
          {"hidden_size", 4},
          {"intermediate_size", 6},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 2},
          {"vocab_size", 8},
          {"max_position_embeddings", 16},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1e4},
          {"tie_word_embeddings", true}};
}

inline std::map<std::string, at::Tensor> SmallTensors() {
  const std::string layer = "model.layers.0.";
  const std::map<std::string, std::vector<int64_t>> shapes = {
      {"model.embed_tokens.weight", {8, 4}},
      {layer + "input_layernorm.weight", {4}},
      {layer + "self_attn.q_proj.weight", {4, 4}},
      {layer + "self_attn.k_proj.weight", {2, 4}},
      {layer + "self_attn.v_proj.weight", {2, 4}},
      {layer + "self_attn.q_norm.weight", {2}},
      {layer + "self_attn.k_norm.weight", {2}},
      {layer + "self_attn.o_proj.weight", {4, 4}},
      {layer + "post_attention_layernorm.weight", {4}},
      {layer + "mlp.gate_proj.weight", {6, 4}},
      {layer + "mlp.up_proj.weight", {6, 4}},
      {layer + "mlp.down_proj.weight", {4, 6}},
      {"model.norm.weight", {4}}};
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = at::full(shape, 0.5);
  return tensors;
}

inline void WriteTensors(const std::filesystem::path& path,
                         const std::map<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  REQUIRE(WriteSafetensors(path, list, {}).ok());
}

inline void WriteModelFolder(const std::filesystem::path& folder,
                             const std::map<std::string, at::Tensor>& tensors = SmallTensors(),
                             const nlohmann::json& config = SmallConfig()) {
  std::ofstream(folder / "config.json") << config.dump();
  WriteTensors(folder / "model.safetensors", tensors);
}

}  // namespace lathe::worker
