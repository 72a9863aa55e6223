#include "services/worker/models/families/families.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {

namespace {

using nlohmann::json;

void Write(const TempDir& folder, const std::string& name, const json& value) {
  std::ofstream(folder / name) << value.dump();
}

// The published config.json of each family, sorted by key.
json PublishedConfig(const std::string& family = "qwen3") {
  static const auto* configs =
      new std::map<std::string, const char*>{{"qwen3",  // Qwen3-0.6B
                                              R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
                                             {"qwen2",  // Qwen2.5-0.5B-Instruct
                                              R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})"},
                                             {"llama",  // Llama-3.2-1B-Instruct
                                              R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})"},
                                             {"mistral",  // Mistral-7B-v0.3
                                              R"({
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 32768})"},
                                             {"gemma3_text",  // gemma-3-1b-it
                                              R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})"}};
  return json::parse(configs->at(family));
}

absl::StatusOr<DecoderSpec> Read(const json& config) {
  const TempDir folder;
  Write(folder, "config.json", config);
  return ReadModelConfig(folder.path());
}

}  // namespace

TEST_CASE("ReadModelConfig: reads the published config", "[models]") {
  const absl::StatusOr<DecoderSpec> spec = Read(PublishedConfig());
  REQUIRE(spec.ok());
  CHECK(spec->num_layers() == 28);
  CHECK(spec->layers[27].attention.head_dim == 128);
  CHECK(spec->ropes[0].theta == 1e6);
  CHECK(spec->tie_word_embeddings);
  CHECK(spec->eos_token_ids == std::vector<int64_t>{151645});
}

TEST_CASE("ReadModelConfig: Llama's rope, head size and missing norms are read", "[models]") {
  json config = PublishedConfig("llama");
  config.erase("head_dim");  // older folders lack it
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->layers[15].attention.head_dim == 64);
  CHECK_FALSE(spec->layers[0].attention.has_qk_norm);
  CHECK(spec->layers[0].q_norm == kNoRow);
  CHECK(spec->rms_norm_eps == 1e-5);
  CHECK(spec->ropes == std::vector<RopeSpec>{{.type = RopeType::kLlama3,
                                              .theta = 5e5,
                                              .factor = 32,
                                              .original_max_position_embeddings = 8192,
                                              .low_freq_factor = 1,
                                              .high_freq_factor = 4}});
  CHECK(spec->eos_token_ids == std::vector<int64_t>{128001, 128008, 128009});
}

TEST_CASE("ReadModelConfig: Llama's flags give biases to attention and MLP", "[models]") {
  json config = PublishedConfig("llama");
  config["mlp_bias"] = true;
  absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  const auto has_bias = [&](const char* name) {
    const auto& rows = spec->linears->rows;
    return std::find_if(rows.begin(), rows.end(),
                        [&](const LinearSpec& linear) { return linear.module() == name; })
        ->has_bias;
  };
  CHECK(has_bias("down_proj"));
  CHECK_FALSE(has_bias("o_proj"));
  config["attention_bias"] = true;
  spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(has_bias("o_proj"));
  CHECK_FALSE(has_bias("lm_head"));
}

TEST_CASE("ReadModelConfig: Qwen2 has biases of queries, keys and values only", "[models]") {
  const absl::StatusOr<DecoderSpec> spec = Read(PublishedConfig("qwen2"));
  REQUIRE(spec.ok());
  CHECK(spec->layers[0].attention.head_dim == 64);
  CHECK(spec->layers[23].attention.window == 0);
  std::string biased;
  for (const LinearSpec& linear : spec->linears->rows) {
    if (linear.layer == 0 && linear.has_bias) biased += std::string(linear.module()) + " ";
  }
  CHECK(biased == "q_proj k_proj v_proj ");
}

TEST_CASE("ReadModelConfig: Qwen's upper layers attend over a window if it is on", "[models]") {
  json config = PublishedConfig("qwen2");
  config["use_sliding_window"] = true;
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->layers[20].attention.window == 0);
  CHECK(spec->layers[21].attention.window == 32768);
}

TEST_CASE("ReadModelConfig: all of Mistral's layers attend over its window", "[models]") {
  json config = PublishedConfig("mistral");
  int64_t window = 0;
  SECTION("null is none") { config["head_dim"] = nullptr; }
  SECTION("as in v0.1") { config["sliding_window"] = window = 4096; }
  SECTION("an absent key is not null") {
    window = 4096;
    for (const char* key : {"eos_token_id", "num_key_value_heads", "sliding_window"}) {
      config.erase(key);
    }
  }
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->layers[0].attention.window == window);
  CHECK(spec->layers[31].attention.window == window);
  CHECK(spec->layers[0].attention.head_dim == 128);
  CHECK(spec->layers[0].attention.num_kv_heads == 8);
  CHECK_FALSE(spec->layers[0].attention.has_qk_norm);
  CHECK(spec->ropes[0].theta == 1e6);
  CHECK(spec->eos_token_ids == std::vector<int64_t>{2});
}

TEST_CASE("ReadModelConfig: Mistral with layer_types is read as a Ministral", "[models]") {
  json config = PublishedConfig("mistral");
  config["sliding_window"] = 8;
  config["layer_types"] = json::array();
  for (int layer = 0; layer < 32; ++layer) {
    config["layer_types"].push_back(layer % 4 == 0 ? "full_attention" : "sliding_attention");
  }
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->layers[28].attention.window == 0);
  CHECK(spec->layers[31].attention.window == 8);
}

TEST_CASE("ReadModelConfig: Gemma 3 has windows, two ropes, four norms and scales", "[models]") {
  json config = PublishedConfig("gemma3_text");
  SECTION("the older spelling") {}
  SECTION("the newer spelling") {
    for (const char* key :
         {"rope_local_base_freq", "rope_scaling", "rope_theta", "sliding_window_pattern"}) {
      config.erase(key);
    }
    config["rope_parameters"] = json::parse(R"({
        "full_attention": {"rope_theta": 1000000, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10000, "rope_type": "default"}})");
    config["_sliding_window_pattern"] = 6;  // Transformers 5 writes it
    config["layer_types"] = json::array();
    for (int layer = 0; layer < 26; ++layer) {
      config["layer_types"].push_back(layer % 6 == 5 ? "full_attention" : "sliding_attention");
    }
  }
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  const LayerSpec& local = spec->layers[4];
  const LayerSpec& global = spec->layers[5];
  CHECK(local.attention.window == 512);
  CHECK(global.attention.window == 0);
  CHECK(spec->ropes[local.attention.rope].theta == 1e4);
  CHECK(spec->ropes[global.attention.rope].theta == 1e6);
  CHECK(local.attention.scale == 1.0 / 16);
  CHECK(local.activation == Activation::kGeluTanh);
  CHECK(spec->vectors->rows[local.mlp_output_norm].source ==
        "model.layers.4.post_feedforward_layernorm.weight");
  CHECK(spec->vectors->rows[local.attention_output_norm].source ==
        "model.layers.4.post_attention_layernorm.weight");
  CHECK(spec->norm_offset == 1);
  CHECK(spec->embedding_scale == std::sqrt(1152.0));
  CHECK(spec->tie_word_embeddings);  // not in the file
}

TEST_CASE("ReadModelConfig: yarn gets its defaults, and its factors if given", "[models]") {
  json config = PublishedConfig();
  config["rope_scaling"] =
      json::parse(R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10240})");
  absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->ropes[0].type == RopeType::kYarn);
  CHECK(spec->ropes[0].theta == 1e6);
  CHECK(spec->ropes[0].original_max_position_embeddings == 10240);
  CHECK(spec->ropes[0].attention_factor == 0.1 * std::log(4.0) + 1);
  config["rope_scaling"].update({{"mscale", 1.0}, {"mscale_all_dim", 1.0}, {"truncate", false}});
  spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->ropes[0].attention_factor == 1);
  CHECK_FALSE(spec->ropes[0].truncate);
}

TEST_CASE("ReadModelConfig: reads the newer spelling of rope", "[models]") {
  json config = PublishedConfig();
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_theta", 5000}, {"rope_type", "default"}};
  config["layer_types"] = json::array();
  for (int layer = 0; layer < 28; ++layer) config["layer_types"].push_back("full_attention");
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->ropes[0].theta == 5000);
}

TEST_CASE("ReadModelConfig: an unsupported value is an error that names it", "[models]") {
  const auto [family, patch, named] = GENERATE(table<const char*, std::string, std::string>({
      {"qwen3", R"({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})",
       "rope_scaling.rope_type is \"dynamic\""},
      {"qwen3", R"({"rope_scaling": {"rope_type": "linear"}})", "rope_scaling.factor is missing"},
      {"qwen3", R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "short_factor": [1]}})",
       "rope_scaling.short_factor"},
      {"qwen3", R"({"rope_scaling": [1]})", "rope_scaling is [1]"},
      {"qwen3", R"({"rope_parameters": {"rope_type": "linear", "rope_theta": 1000000}})",
       "rope_parameters.factor is missing"},
      {"qwen3", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7}})",
       "rope_parameters.rope_theta is 7"},
      {"qwen3", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", "partial_rotary_factor"},
      {"qwen3", R"({"rope_theta": 1})", "rope_theta is 1"},
      {"qwen3", R"({"use_sliding_window": true})", "sliding_window is null"},
      {"qwen3", R"({"layer_types": ["full_attention", "sliding_attention"]})", "sliding_attention"},
      {"qwen3", R"({"use_sliding_window": true, "sliding_window": 8, "layer_types": ["full"]})",
       "layer_types is"},
      {"qwen3", R"({"hidden_act": "gelu"})", "hidden_act"},
      {"qwen3", R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {"qwen3", R"({"num_experts": 128})", "num_experts"},
      {"qwen3", R"({"hidden_size": 0})", "hidden_size"},
      {"qwen3", R"({"eos_token_id": 151936})", "eos_token_id"},
      {"llama", R"({"num_attention_heads": 7, "head_dim": null})", "hidden_size is 2048"},
      {"llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                     "high_freq_factor": 4}})",
       "rope_scaling.high_freq_factor is 4"},
      {"llama", R"({"sliding_window": 512})", "sliding_window is not understood"},
      {"mistral", R"({"sliding_window": 0})", "sliding_window is 0"},
      {"mistral", R"({"layer_types": ["sliding_attention"]})", "layer_types is \"sliding"},
      {"mistral", R"({"attention_bias": true})", "attention_bias is not understood"},
      {"mistral", R"({"hidden_act": "gelu"})", "hidden_act"},
      {"gemma3_text", R"({"attn_logit_softcapping": 50.0})", "attn_logit_softcapping"},
      {"gemma3_text", R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
      {"gemma3_text", R"({"hidden_activation": "gelu"})", "hidden_activation"},
      {"gemma3_text", R"({"query_pre_attn_scalar": 0})", "query_pre_attn_scalar"},
      {"gemma3_text", R"({"rope_local_base_freq": -1})", "rope_local_base_freq is -1"},
  }));
  json config = PublishedConfig(family);
  config.update(json::parse(patch));
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(spec.status().message()), Catch::Contains(named));
}

TEST_CASE("ReadModelConfig: generation_config's end tokens come before config's", "[models]") {
  const TempDir folder;
  Write(folder, "config.json", PublishedConfig());
  Write(folder, "generation_config.json", {{"eos_token_id", {151645, 151643}}});
  const absl::StatusOr<DecoderSpec> spec = ReadModelConfig(folder.path());
  REQUIRE(spec.ok());
  CHECK(spec->eos_token_ids == std::vector<int64_t>{151645, 151643});
}

TEST_CASE("ReadModelConfig: a missing file and broken JSON get different errors", "[models]") {
  const TempDir folder;
  CHECK(ReadModelConfig(folder.path()).status().code() == absl::StatusCode::kNotFound);
  std::ofstream(folder.path() / "config.json") << "{ \"hidden_size\": ";
  CHECK(ReadModelConfig(folder.path()).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace lathe::worker
