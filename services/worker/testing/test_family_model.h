// Small random models of several families on any device, for tests.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "services/worker/models/decoder.h"
#include "services/worker/models/families/families.h"
#include "services/worker/testing/test_gpu.h"
#include "services/worker/testing/test_temp_dir.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Families with all steps that differ between them: norms of heads and of outputs, biases, windows,
// scaled rope, both activations. Windows are shorter than the tests' sequences.
inline const std::vector<std::string>& TestFamilies() {
  static const auto* const families =
      new std::vector<std::string>{"qwen3", "qwen2", "llama", "mistral", "gemma3_text"};
  return *families;
}

inline nlohmann::json TestConfig(const std::string& family, int64_t head_dim, int64_t num_layers) {
  nlohmann::json config = {{"model_type", family},
                           {"hidden_act", "silu"},
                           {"num_hidden_layers", num_layers},
                           {"hidden_size", 64},
                           {"intermediate_size", 48},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", head_dim},
                           {"vocab_size", 96},
                           {"max_position_embeddings", 512},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 1e4},
                           {"eos_token_id", 95},
                           {"tie_word_embeddings", family != "llama"}};
  if (family == "mistral") config["sliding_window"] = 8;
  if (family == "llama") {
    config.update({{"attention_bias", true},
                   {"mlp_bias", true},
                   {"rope_scaling",
                    {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 64}}}});
  }
  if (family == "gemma3_text") {
    config.erase("hidden_act");
    config.update({{"hidden_activation", "gelu_pytorch_tanh"},
                   {"query_pre_attn_scalar", head_dim},
                   {"rope_local_base_freq", 1e3},
                   {"sliding_window", 8},
                   {"sliding_window_pattern", 2}});
  }
  return config;
}

// `changes` are entries of the config that differ from TestConfig's.
inline DecoderSpec TestFamilySpec(const std::string& family, int64_t head_dim,
                                  int64_t num_layers = 2,
                                  const nlohmann::json& changes = nlohmann::json::object()) {
  const TempDir folder;
  nlohmann::json config = TestConfig(family, head_dim, num_layers);
  config.update(changes);
  std::ofstream(folder / "config.json") << config.dump();
  const absl::StatusOr<DecoderSpec> spec = ReadModelConfig(folder.path());
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

// Returns a model with matrices of `dtype` on `device`. The values are equal on all devices.
inline Decoder RandomModelOn(at::Device device, const DecoderSpec& spec, at::ScalarType dtype) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::kFloat).mul_(0.2);
  };
  const auto matrix = [&](int64_t n, int64_t k) {
    return BaseWeight(random({n, k}).to(dtype).to(device));
  };
  DecoderWeights weights;
  weights.embedding = {matrix(spec.vocab_size, spec.hidden_size)};
  weights.lm_head = weights.embedding;
  if (!spec.tie_word_embeddings) weights.lm_head = {matrix(spec.vocab_size, spec.hidden_size)};
  for (const LinearStack& stack : spec.linears->stacks) {
    int64_t num_outputs = 0;
    for (int64_t i = 0; i < stack.count; ++i) {
      num_outputs += spec.linears->rows[stack.first + i].out_features;
    }
    const LinearSpec& first = spec.linears->rows[stack.first];
    weights.stacks.push_back(matrix(num_outputs, first.in_features));
    weights.biases.push_back(first.has_bias ? random({num_outputs}).to(device) : at::Tensor());
  }
  for (const VectorSpec& vector : spec.vectors->rows) {
    weights.vectors.push_back(random({vector.size}).add_(1).to(device));
  }
  return Decoder(WholeModel(spec), std::move(weights));
}

}  // namespace lathe::worker
