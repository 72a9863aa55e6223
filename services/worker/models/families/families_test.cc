#include "services/worker/models/families/families.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
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

// The published config.json of Qwen3-0.6B, sorted by key.
json PublishedConfig() {
  return json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
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

TEST_CASE("ReadModelConfig: reads the newer spelling of rope", "[models]") {
  json config = PublishedConfig();
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_theta", 5000}, {"rope_type", "default"}};
  config["layer_types"] = {"full_attention"};
  const absl::StatusOr<DecoderSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->ropes[0].theta == 5000);
}

TEST_CASE("ReadModelConfig: an unsupported value is an error that names it", "[models]") {
  const auto [patch, named] = GENERATE(table<std::string, std::string>({
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})", "rope_scaling."},
      {R"({"rope_parameters": {"rope_type": "linear", "rope_theta": 1000000}})", "rope_type"},
      {R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7}})", "rope_theta"},
      {R"({"use_sliding_window": true})", "use_sliding_window"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "sliding_attention"},
      {R"({"hidden_act": "gelu"})", "hidden_act"},
      {R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {R"({"num_experts": 128})", "num_experts"},
      {R"({"hidden_size": 0})", "hidden_size"},
      {R"({"head_dim": 7})", "head_dim"},
      {R"({"num_key_value_heads": 5})", "num_key_value_heads"},
      {R"({"eos_token_id": 151936})", "eos_token_id"},
  }));
  json config = PublishedConfig();
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
