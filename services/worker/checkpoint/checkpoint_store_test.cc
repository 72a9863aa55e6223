#include "services/worker/checkpoint/checkpoint_store.h"

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <string>

#include <catch2/catch.hpp>

#include "services/worker/checkpoint/atomic_directory.h"
#include "services/worker/formats/safetensors/sha256.h"
#include "services/worker/testing/test_store.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

// Returns a manifest as written before manifests had a checksum of their own.
std::string WithoutChecksum(const std::string& manifest) {
  return std::regex_replace(manifest, std::regex(R"(,\s*"fields_sha256": "[0-9a-f]*")"), "");
}

// Returns an adapter in which every buffer differs from its initial value.
Adapter TrainedAdapter() {
  Adapter adapter(WholeModel(SmallModel()), {.rank = 3, .seed = 5}, at::kCPU);
  adapter.MutableParameters().normal_();
  adapter.exp_avg.normal_();
  adapter.exp_avg_sq.uniform_();
  adapter.num_steps = 7;
  adapter.applied_seq = 41;
  return adapter;
}

bool IsEmptyDir(const fs::path& dir) { return !fs::exists(dir) || fs::is_empty(dir); }

TEST_CASE("Checkpoint: alpha and target modules come back, the PEFT config has them",
          "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const LoraSpec lora{
      .rank = 3, .alpha = 7.5, .seed = 5, .target_modules = {"q_proj", "down_proj", "lm_head"}};
  Adapter adapter(WholeModel(SmallModel()), lora, at::kCPU);
  adapter.MutableParameters().normal_();
  REQUIRE(store.SaveTraining("a", StateToSave(adapter), "").ok());

  const auto loaded = store.Load("a", /*with_optimizer=*/true, at::kCPU);
  REQUIRE(loaded.ok());
  CHECK(loaded->adapter->lora().alpha == 7.5);
  CHECK(loaded->adapter->lora().target_modules == lora.target_modules);
  CHECK(at::equal(loaded->adapter->parameters(), adapter.parameters()));
  CHECK(loaded->adapter->scaling() == 2.5);
  const std::string peft = ReadText(dir.path() / "a" / "adapter_config.json");
  CHECK_THAT(peft, Catch::Contains("\"lora_alpha\": 7.5"));
  CHECK_THAT(peft, Catch::Contains("\"down_proj\",\n    \"lm_head\",\n    \"q_proj\"\n"));
}

TEST_CASE("Checkpoint: a manifest that names families only is read as their modules",
          "[checkpoint]") {
  const TempDir dir;
  const LoraSpec lora{.rank = 3, .target_modules = LoraModulesOf(true, false, true)};
  REQUIRE(MakeStore(dir)
              .SaveTraining("a", StateToSave(Adapter(WholeModel(SmallModel()), lora, at::kCPU)), "")
              .ok());
  const fs::path path = dir.path() / "a" / "manifest.json";
  std::string text = ReadText(path);
  const size_t begin = text.find("\"target_modules\"");
  const size_t end = text.find(']', begin) + 1;
  text.replace(begin, end - begin,
               R"("train_attn": true, "train_mlp": false, "train_unembed": true)");
  std::ofstream(path) << WithoutChecksum(text);
  const auto manifest = ReadManifest(dir.path() / "a");
  REQUIRE(manifest.ok());
  CHECK(manifest->lora.target_modules == lora.target_modules);
}

TEST_CASE("Checkpoint: training state comes back bit for bit", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const Adapter adapter = TrainedAdapter();
  const auto saved = store.SaveTraining(
      "runs/a/weights/1", StateToSave(adapter, {.learning_rate = 0.5}), R"({"term":3})");
  REQUIRE(saved.ok());

  const auto loaded = store.Load("runs/a/weights/1", /*with_optimizer=*/true, at::kCPU);
  REQUIRE(loaded.ok());
  CHECK(at::equal(loaded->adapter->parameters(), adapter.parameters()));
  CHECK(at::equal(loaded->adapter->exp_avg, adapter.exp_avg));
  CHECK(at::equal(loaded->adapter->exp_avg_sq, adapter.exp_avg_sq));
  CHECK(loaded->adapter->num_steps == 7);
  CHECK(loaded->manifest.applied_seq == 41);
  CHECK(loaded->manifest.optimizer->last_adam.learning_rate == 0.5);
  CHECK(loaded->adapter->lora().rank == 3);

  const fs::path final_dir = dir / "runs/a/weights/1";
  CHECK(DigestFile(final_dir / kManifestFile)->sha256 == saved->manifest_sha256);
  int64_t total = 0;
  for (const auto& entry : fs::directory_iterator(final_dir)) total += entry.file_size();
  CHECK(total == saved->size_bytes);
  CHECK(IsEmptyDir(dir / "tmp"));
}

TEST_CASE("Checkpoint: external files are for download, and may be encrypted", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  Adapter adapter = TrainedAdapter();
  const bool is_encrypted = GENERATE(false, true);
  std::vector<AgeRecipient> recipients;
  if (is_encrypted) {
    recipients.push_back(
        *ParseAgeRecipient("age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z"));
  }
  REQUIRE(store.SaveExternal("e", "m", *adapter.Publish(), 41, recipients, "").ok());
  const std::string suffix = is_encrypted ? ".age" : "";
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    CHECK(fs::exists(dir / "e" / (name + suffix)));
    CHECK(fs::exists(dir / "e" / name) != is_encrypted);
  }
  const auto manifest = ReadManifest(dir / "e");
  REQUIRE(manifest.ok());
  CHECK(manifest->kind == CheckpointKind::kExternal);
  CHECK(manifest->tensors.empty() == is_encrypted);
  for (const ManifestFile& file : manifest->files) {
    CHECK(DigestFile(dir / "e" / file.name)->sha256 == file.sha256);
  }
  CHECK(store.Load("e", /*with_optimizer=*/false, at::kCPU).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Checkpoint: without the optimizer moments and steps are zero", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const Adapter adapter = TrainedAdapter();
  REQUIRE(store.SaveTraining("a", StateToSave(adapter), "").ok());
  const auto loaded = store.Load("a", /*with_optimizer=*/false, at::kCPU);
  REQUIRE(loaded.ok());
  CHECK(at::equal(loaded->adapter->parameters(), adapter.parameters()));
  CHECK(loaded->adapter->exp_avg.abs().max().item<float>() == 0);
  CHECK(loaded->adapter->num_steps == 0);
}

TEST_CASE("Checkpoint: a sampler version is the weights alone, without moments", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  Adapter adapter = TrainedAdapter();
  const auto version = adapter.Publish();
  REQUIRE(store.SaveSampler("s", "m", *version, 41, "{}").ok());
  const auto loaded = store.Load("s", /*with_optimizer=*/false, at::kCPU);
  REQUIRE(loaded.ok());
  CHECK(at::equal(loaded->adapter->Publish()->tensors.flat, version->tensors.flat));
  CHECK(fs::exists(dir / "s/checkpoint_complete"));
  CHECK_FALSE(fs::exists(dir / "s/optimizer.safetensors"));
  CHECK(store.Load("s", /*with_optimizer=*/true, at::kCPU).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Checkpoint: the weights alone are the same, whatever the optimizer's file holds",
          "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const Adapter adapter = TrainedAdapter();
  REQUIRE(store.SaveTraining("a", StateToSave(adapter), "").ok());
  const auto damage = [&](const char* file) {
    std::fstream(dir / file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(-1, std::ios::end)
        .put('\x55');
  };
  damage("a/optimizer.safetensors");
  const auto weights = store.LoadWeights("a", at::kCPU);
  REQUIRE(weights.ok());
  CHECK(at::equal((*weights)->tensors.flat, adapter.parameters()));
  CHECK((*weights)->lora.rank == 3);
  CHECK((*weights)->scaling == adapter.scaling());
  CHECK(at::equal((*weights)->tensors.linears[7].a, adapter.Publish()->tensors.linears[7].a));

  damage("a/adapter_model.safetensors");
  const absl::Status damaged = store.LoadWeights("a", at::kCPU).status();
  CHECK(damaged.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(damaged.message()),
             Catch::Contains("base_model.model.lm_head.lora_B.weight: checksum mismatch"));
}

TEST_CASE("Checkpoint: a changed byte is found in the weights alone, or changes nothing",
          "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const auto version = TrainedAdapter().Publish();
  REQUIRE(store.SaveSampler("s", "m", *version, 41, "{}").ok());
  const fs::path path = dir / "s/adapter_model.safetensors";
  const std::string text = ReadText(path);
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  int num_refused = 0;
  for (int attempt = 0; attempt < 300; ++attempt) {
    std::string changed = text;
    changed[random() % changed.size()] ^= static_cast<char>(1 << (random() % 8));
    std::ofstream(path, std::ios::binary) << changed;
    const auto loaded = store.LoadWeights("s", at::kCPU);
    if (loaded.ok()) {
      REQUIRE(at::equal((*loaded)->tensors.flat, version->tensors.flat));
    } else {
      ++num_refused;
    }
  }
  CHECK(num_refused > 100);
}

TEST_CASE("Checkpoint: a tensor that the shape wants and the file lacks is named", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveSampler("s", "m", *TrainedAdapter().Publish(), 41, "{}").ok());
  std::string manifest = ReadText(dir / "s/manifest.json");
  const std::string rank = "\"rank\": 3";
  REQUIRE(manifest.find(rank) != std::string::npos);
  manifest.replace(manifest.find(rank), rank.size(), "\"rank\": 4");
  std::ofstream(dir / "s/manifest.json") << WithoutChecksum(manifest);
  const absl::Status refused = store.LoadWeights("s", at::kCPU).status();
  CHECK(refused.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("is missing or not [4,8]"));
}

TEST_CASE("Checkpoint: another base model is refused", "[checkpoint]") {
  const TempDir dir;
  REQUIRE(MakeStore(dir).SaveTraining("a", StateToSave(TrainedAdapter()), "").ok());
  const auto loaded = MakeStore(dir, "other").Load("a", true, at::kCPU);
  CHECK(loaded.status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Checkpoint: a directory outside the store is refused", "[checkpoint]") {
  const TempDir dir;
  const std::string outside = GENERATE("../x", "/etc", ".", "a/../../x");
  CHECK(MakeStore(dir).Load(outside, true, at::kCPU).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Checkpoint: a changed byte in any file is found and the file named", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  const std::string name =
      GENERATE("adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json");
  REQUIRE(store.SaveTraining("a", StateToSave(TrainedAdapter()), "").ok());
  const fs::path path = dir / ("a/" + name);
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto position = static_cast<std::streamoff>(random() % fs::file_size(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const char before = (file.seekg(position), static_cast<char>(file.get()));
    file.seekp(position).put(static_cast<char>(before ^ (1 << (random() % 8)))).flush();
    const auto loaded = store.Load("a", true, at::kCPU);
    REQUIRE(loaded.status().code() == absl::StatusCode::kDataLoss);
    REQUIRE_THAT(std::string(loaded.status().message()), Catch::Contains(name));
    file.seekp(position).put(before);
  }
  CHECK(store.Load("a", true, at::kCPU).ok());
}

TEST_CASE("Checkpoint: damage inside a tensor names the tensor", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveTraining("a", StateToSave(TrainedAdapter()), "").ok());
  std::fstream file(dir / "a/adapter_model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x55').flush();
  CHECK_THAT(std::string(store.Load("a", true, at::kCPU).status().message()),
             Catch::Contains("base_model.model.lm_head.lora_B.weight"));
}

TEST_CASE("Checkpoint: a save that fails half way leaves nothing behind", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 2000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto saved = store.SaveTraining("a", StateToSave(TrainedAdapter()), "");
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK_FALSE(saved.ok());
  CHECK_FALSE(fs::exists(dir / "a"));
  CHECK(IsEmptyDir(dir / "tmp"));
}

TEST_CASE("Checkpoint: saving again replaces a save that was never committed", "[checkpoint]") {
  const TempDir dir;
  CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveTraining("a", StateToSave(TrainedAdapter()), "").ok());
  const Adapter second = TrainedAdapter();
  REQUIRE(store.SaveTraining("a", StateToSave(second), "").ok());
  CHECK(at::equal(store.Load("a", true, at::kCPU)->adapter->parameters(), second.parameters()));
  CHECK(IsEmptyDir(dir / "tmp"));
}

TEST_CASE("Checkpoint: the sweep removes unfinished saves", "[checkpoint]") {
  const TempDir dir;
  fs::create_directories(dir / "tmp/left");
  REQUIRE(SweepAttempts(dir.path(), absl::Now()).ok());
  CHECK(fs::exists(dir / "tmp/left"));  // it may be about to be locked
  auto created = AtomicDirectory::Create(dir.path());
  REQUIRE(created.ok());
  AtomicDirectory attempt = *std::move(created);
  REQUIRE(SweepAttempts(dir.path(), absl::Now() + absl::Hours(100)).ok());
  CHECK_FALSE(fs::exists(dir / "tmp/left"));
  REQUIRE(fs::exists(attempt.path()));
  REQUIRE(attempt.Commit(dir / "a").ok());
  CHECK(IsEmptyDir(dir / "tmp"));
}

}  // namespace
}  // namespace lathe::worker
