#include "services/worker/models/qwen3/config.h"

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

absl::StatusOr<ModelSpec> Read(const json& config) {
  const TempDir folder;
  Write(folder, "config.json", config);
  return ReadQwen3Config(folder.path());
}

}  // namespace

TEST_CASE("ReadQwen3Config: reads the published config", "[models]") {
  const absl::StatusOr<ModelSpec> spec = Read(PublishedConfig());
  REQUIRE(spec.ok());
  CHECK(spec->num_layers == 28);
  CHECK(spec->head_dim == 128);
  CHECK(spec->rope_theta == 1e6);
  CHECK(spec->tie_word_embeddings);
  CHECK(spec->eos_token_ids == std::vector<int64_t>{151645});
}

TEST_CASE("ReadQwen3Config: reads the newer spelling of rope", "[models]") {
  json config = PublishedConfig();
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_theta", 5000}, {"rope_type", "default"}};
  config["layer_types"] = {"full_attention"};
  const absl::StatusOr<ModelSpec> spec = Read(config);
  REQUIRE(spec.ok());
  CHECK(spec->rope_theta == 5000);
}

TEST_CASE("ReadQwen3Config: an unsupported value is an error that names it", "[models]") {
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
  const absl::StatusOr<ModelSpec> spec = Read(config);
  REQUIRE(spec.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(spec.status().message()), Catch::Contains(named));
}

TEST_CASE("ReadQwen3Config: generation_config's end tokens come before config's", "[models]") {
  const TempDir folder;
  Write(folder, "config.json", PublishedConfig());
  Write(folder, "generation_config.json", {{"eos_token_id", {151645, 151643}}});
  const absl::StatusOr<ModelSpec> spec = ReadQwen3Config(folder.path());
  REQUIRE(spec.ok());
  CHECK(spec->eos_token_ids == std::vector<int64_t>{151645, 151643});
}

TEST_CASE("ReadQwen3Config: a missing file and broken JSON get different errors", "[models]") {
  const TempDir folder;
  CHECK(ReadQwen3Config(folder.path()).status().code() == absl::StatusCode::kNotFound);
  std::ofstream(folder.path() / "config.json") << "{ \"hidden_size\": ";
  CHECK(ReadQwen3Config(folder.path()).status().code() == absl::StatusCode::kInvalidArgument);
}

namespace {

ModelSpec Spec() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 12,
          .intermediate_size = 24,
          .num_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 4,
          .vocab_size = 37};
}

std::vector<ModelPart> AllParts(const ModelSpec& spec, int64_t tp) {
  std::vector<ModelPart> all;
  for (int64_t index = 0; index < tp; ++index) {
    const auto part = ShardQwen3(spec, {.index = index, .size = tp});
    REQUIRE(part.ok());
    all.push_back(*part);
  }
  return all;
}

// Checks that the shards are consecutive from 0 to `whole` and equal in size, with padding.
void CheckCovers(const std::vector<Shard>& shards, int64_t whole) {
  int64_t covered = 0;
  for (const Shard& shard : shards) {
    CHECK(shard.begin == covered);
    CHECK(shard.size > 0);
    CHECK(shard.padded_size() == shards[0].padded_size());
    covered += shard.size;
  }
  CHECK(covered == whole);
}

void CheckRefused(const ModelSpec& spec, int64_t tp, const std::string& message) {
  for (int64_t index = 0; index < tp; ++index) {
    const auto part = ShardQwen3(spec, {.index = index, .size = tp});
    REQUIRE(part.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(part.status().message() == message);
  }
}

}  // namespace

TEST_CASE("ShardQwen3: one rank has the whole model", "[models]") {
  const ModelPart part = AllParts(Spec(), 1)[0];
  CHECK(part.queries.size == 32);
  CHECK(part.keys.size == 8);
  CHECK(part.intermediate.size == 24);
  CHECK(part.vocabulary.size == 37);
  CHECK(part.vocabulary.padding == 0);
  CHECK(part.num_kv_replicas == 1);
  CHECK(part.local.num_heads == 8);
  CHECK(part.local.num_kv_heads == 2);
  CHECK(part.local.intermediate_size == 24);
  CHECK(part.local.vocab_size == 37);
}

TEST_CASE("ShardQwen3: the shards of all ranks cover every dimension once", "[models]") {
  const int64_t tp = GENERATE(1, 2, 4, 8);
  ModelSpec spec = Spec();
  spec.vocab_size = 61;
  std::vector<Shard> queries, keys, intermediate, vocabulary;
  for (const ModelPart& part : AllParts(spec, tp)) {
    queries.push_back(part.queries);
    intermediate.push_back(part.intermediate);
    vocabulary.push_back(part.vocabulary);
    // Counts only the first of several replicas.
    const auto rank = static_cast<int64_t>(queries.size()) - 1;
    if (rank % part.num_kv_replicas == 0) keys.push_back(part.keys);
    CHECK(part.local.num_heads == 8 / tp);
    CHECK(part.local.intermediate_size == 24 / tp);
    CHECK(part.local.hidden_size == 12);
  }
  CheckCovers(queries, 32);
  CheckCovers(keys, 8);
  CheckCovers(intermediate, 24);
  CheckCovers(vocabulary, 61);
}

TEST_CASE("ShardQwen3: every query head lies where its keys are", "[models]") {
  const int64_t num_kv_heads = GENERATE(1, 2, 4, 8);
  const int64_t tp = GENERATE(1, 2, 4, 8);
  ModelSpec spec = Spec();
  spec.num_kv_heads = num_kv_heads;
  spec.vocab_size = 128;
  const int64_t group = spec.num_heads / num_kv_heads;
  for (const ModelPart& part : AllParts(spec, tp)) {
    const int64_t first_query = part.queries.begin / spec.head_dim;
    const int64_t first_key = part.keys.begin / spec.head_dim;
    // Attention divides its query heads evenly among its KV heads.
    const int64_t local_group = part.local.num_heads / part.local.num_kv_heads;
    for (int64_t head = 0; head < part.local.num_heads; ++head) {
      CHECK((first_query + head) / group == first_key + head / local_group);
    }
  }
}

TEST_CASE("ShardQwen3: with more ranks than KV heads neighbours hold the same one", "[models]") {
  const std::vector<ModelPart> all = AllParts(Spec(), 4);
  CHECK(all[0].num_kv_replicas == 2);
  CHECK(all[0].local.num_kv_heads == 1);
  CHECK(all[0].keys.begin == 0);
  CHECK(all[1].keys.begin == 0);
  CHECK(all[2].keys.begin == 4);
  CHECK(all[3].keys.begin == 4);
}

TEST_CASE("ShardQwen3: the vocabulary is padded to whole blocks of random bits", "[models]") {
  for (const ModelPart& part : AllParts(Spec(), 4)) {
    CHECK(part.vocabulary.begin % 4 == 0);
    CHECK(part.local.vocab_size == 12);
  }
  const Shard last = AllParts(Spec(), 4)[3].vocabulary;
  CHECK(last.size == 1);
  CHECK(last.padding == 11);
}

TEST_CASE("ShardQwen3: a dimension that cannot be split is refused by name", "[models]") {
  ModelSpec spec = Spec();
  SECTION("heads") { CheckRefused(spec, 3, "num_attention_heads is 8, not a multiple of tp 3"); }
  SECTION("KV heads") {
    spec.num_heads = 12;
    spec.num_kv_heads = 3;
    CheckRefused(spec, 4, "num_key_value_heads is 3, neither a multiple nor a divisor of tp 4");
  }
  SECTION("MLP") {
    spec.intermediate_size = 22;
    CheckRefused(spec, 4, "intermediate_size is 22, not a multiple of tp 4");
  }
  SECTION("vocabulary") {
    spec.vocab_size = 12;
    CheckRefused(spec, 4, "vocab_size is 12, with tp 4 rank 3 has the tokens from 12 on: none");
  }
}

}  // namespace lathe::worker
