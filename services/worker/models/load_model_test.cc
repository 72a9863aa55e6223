#include "services/worker/models/load_model.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "services/worker/testing/test_model_folder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

using nlohmann::json;

absl::StatusOr<LoadedModel> Load(const std::map<std::string, at::Tensor>& tensors,
                                 const json& config = SmallConfig()) {
  const TempDir dir;
  WriteModelFolder(dir.path(), tensors, config);
  return LoadModel(dir.path(), at::kCPU, nullptr);
}

void CheckRefused(const absl::StatusOr<LoadedModel>& loaded, const std::string& named) {
  REQUIRE(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(loaded.status().message()), Catch::Contains(named));
}

}  // namespace

TEST_CASE("LoadModel: a folder with every tensor loads", "[models]") {
  const auto loaded = Load(SmallTensors());
  REQUIRE(loaded.ok());
  CHECK(loaded->model->spec().hidden_size == 4);
  CHECK(loaded->content_hash.size() == 64);
}

TEST_CASE("LoadModel: a missing, misshaped or unknown tensor is an error that names it",
          "[models]") {
  auto tensors = SmallTensors();
  SECTION("missing") {
    tensors.erase("model.layers.0.self_attn.q_norm.weight");
    CheckRefused(Load(tensors), "model.layers.0.self_attn.q_norm.weight is missing");
  }
  SECTION("misshaped") {
    tensors["model.norm.weight"] = at::ones({5});
    CheckRefused(Load(tensors), "model.norm.weight has shape [5], the config says [4]");
  }
  SECTION("unknown") {
    tensors["model.layers.0.self_attn.q_proj.bias"] = at::ones({4});
    CheckRefused(Load(tensors), "model.layers.0.self_attn.q_proj.bias is not understood");
  }
  SECTION("not a float") {
    tensors["model.norm.weight"] = at::ones({4}, at::kLong);
    CheckRefused(Load(tensors), "model.norm.weight has dtype");
  }
}

TEST_CASE("LoadModel: a tied model may hold its head twice, an untied one needs it", "[models]") {
  auto tensors = SmallTensors();
  json untied = SmallConfig();
  untied["tie_word_embeddings"] = false;
  CheckRefused(Load(tensors, untied), "lm_head.weight is missing");
  tensors["lm_head.weight"] = at::ones({8, 4});
  CHECK(Load(tensors, untied).ok());
  CHECK(Load(tensors).ok());
}

TEST_CASE("LoadModel: the content hash follows bytes and config, not the cut into shards",
          "[models]") {
  const auto tensors = SmallTensors();
  auto changed = tensors;
  changed["model.norm.weight"] = at::full({4}, 0.25);
  json other_theta = SmallConfig();
  other_theta["rope_theta"] = 2e4;
  const std::string hash = Load(tensors)->content_hash;
  CHECK(Load(changed)->content_hash != hash);
  CHECK(Load(tensors, other_theta)->content_hash != hash);

  const TempDir dir;
  std::ofstream(dir.path() / "config.json") << SmallConfig().dump();
  json weight_map;
  std::map<std::string, std::map<std::string, at::Tensor>> shards;
  for (const auto& [name, tensor] : tensors) {
    const std::string shard = name.size() % 2 == 0 ? "even.safetensors" : "odd.safetensors";
    weight_map[name] = shard;
    shards[shard][name] = tensor;
  }
  for (const auto& [shard, part] : shards) WriteTensors(dir.path() / shard, part);
  std::ofstream(dir.path() / "model.safetensors.index.json")
      << json{{"weight_map", weight_map}}.dump();
  const auto sharded = LoadModel(dir.path(), at::kCPU, nullptr);
  REQUIRE(sharded.ok());
  CHECK(sharded->content_hash == hash);
}

TEST_CASE("LoadModel: an unknown family and a folder without weights get different errors",
          "[models]") {
  json config = SmallConfig();
  config["model_type"] = "mamba";
  CheckRefused(Load(SmallTensors(), config), "model_type is \"mamba\"");
  const TempDir dir;
  CHECK(LoadModel(dir.path(), at::kCPU, nullptr).status().code() == absl::StatusCode::kNotFound);
  std::ofstream(dir.path() / "config.json") << SmallConfig().dump();
  CHECK(LoadModel(dir.path(), at::kCPU, nullptr).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("LoadModel: heads that no kernel computes are refused by name", "[models]") {
  json config = SmallConfig();
  config["head_dim"] = 7;
  CheckRefused(Load(SmallTensors(), config), "head_dim is 7");
  config = SmallConfig();
  config["num_attention_heads"] = 3;
  config["num_key_value_heads"] = 2;
  CheckRefused(Load(SmallTensors(), config), "not a multiple of num_key_value_heads 2");
}

TEST_CASE("LoadModel: rope frequencies that older folders keep are passed over", "[models]") {
  auto tensors = SmallTensors();
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({1});
  CHECK(Load(tensors).ok());
}

TEST_CASE("LoadModel: progress ends at one and never goes back", "[models]") {
  const TempDir dir;
  std::ofstream(dir.path() / "config.json") << SmallConfig().dump();
  WriteTensors(dir.path() / "model.safetensors", SmallTensors());
  std::vector<double> seen;
  REQUIRE(LoadModel(dir.path(), at::kCPU, [&](double f) { seen.push_back(f); }).ok());
  REQUIRE_FALSE(seen.empty());
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == 1.0);
}

}  // namespace lathe::worker
