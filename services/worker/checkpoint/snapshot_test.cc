#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include <catch2/catch.hpp>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/testing/test_store.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

// Returns a snapshot in which every number differs from its initial value.
ModelSnapshot MakeSnapshot(bool has_window, int64_t applied_seq = 41) {
  Adapter adapter(WholeModel(SmallModel()), {.rank = 3, .alpha = 7, .seed = 5}, at::kCPU);
  adapter.MutableParameters().normal_();
  const auto random = [&] { return at::randn_like(adapter.parameters()); };
  return {.model_id = "m",
          .weights = adapter.Publish(),
          .exp_avg = random(),
          .exp_avg_sq = random().abs_(),
          .gradient = has_window ? random() : at::Tensor(),
          .num_steps = 7,
          .last_adam = {.learning_rate = 0.1, .beta2 = 0.9},
          .applied_seq = applied_seq,
          .window = has_window ? std::vector<int64_t>{42, 44} : std::vector<int64_t>()};
}

bool IsSame(const LoadedAdapter& loaded, const ModelSnapshot& snapshot) {
  const Adapter& adapter = *loaded.adapter;
  const at::Tensor gradient = snapshot.gradient.defined()
                                  ? snapshot.gradient
                                  : at::zeros_like(snapshot.weights->tensors.flat);
  return at::equal(adapter.parameters(), snapshot.weights->tensors.flat) &&
         at::equal(adapter.exp_avg, snapshot.exp_avg) &&
         at::equal(adapter.exp_avg_sq, snapshot.exp_avg_sq) &&
         at::equal(adapter.gradient, gradient) && adapter.num_steps == snapshot.num_steps &&
         adapter.applied_seq == snapshot.applied_seq && adapter.lora().alpha == 7 &&
         adapter.lora().rank == 3 &&
         std::vector<int64_t>(adapter.window.begin(), adapter.window.end()) == snapshot.window &&
         loaded.manifest.optimizer->last_adam.learning_rate == 0.1 &&
         loaded.manifest.optimizer->last_adam.beta2 == 0.9;
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("Snapshot: comes back bit for bit, with and without a window", "[checkpoint]") {
  const TempDir dir;
  const CheckpointStore store = MakeStore(dir);
  const bool has_window = GENERATE(false, true);
  const ModelSnapshot snapshot = MakeSnapshot(has_window);
  REQUIRE(store.SaveSnapshot("s", snapshot, R"({"engine_term": 3})").ok());
  CHECK(fs::exists(dir / "s/gradient.safetensors") == has_window);
  const auto restored = store.Restore("s", "m", at::kCPU);
  REQUIRE(restored.ok());
  CHECK(IsSame(*restored, snapshot));
  const auto weights = store.LoadWeights("s", at::kCPU);
  REQUIRE(weights.ok());
  CHECK(at::equal((*weights)->tensors.flat, snapshot.weights->tensors.flat));
}

TEST_CASE("Snapshot: a changed bit or a lost end is found in any file, and the file is named",
          "[checkpoint]") {
  const TempDir dir;
  const CheckpointStore store = MakeStore(dir);
  const ModelSnapshot snapshot = MakeSnapshot(/*has_window=*/true);
  REQUIRE(store.SaveSnapshot("s", snapshot, "").ok());
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const auto& entry : fs::directory_iterator(dir / "s")) {
    const std::string name = entry.path().filename();
    INFO(name);
    const std::string text = ReadText(entry.path());
    if (text.empty()) continue;
    for (int attempt = 0; attempt < 200; ++attempt) {
      std::string damaged = text;
      const size_t at = random() % text.size();
      if (attempt % 10 == 0) {
        damaged.resize(at);
      } else {
        damaged[at] ^= static_cast<char>(1 << (random() % 8));
      }
      INFO("byte " << at << " of " << text.size());
      WriteText(entry.path(), damaged);
      const auto restored = store.Restore("s", "m", at::kCPU);
      // White space in the manifest has no meaning.
      const bool is_harmless = restored.ok() && name == kManifestFile;
      if (is_harmless) {
        REQUIRE(IsSame(*restored, snapshot));
      } else {
        REQUIRE_FALSE(restored.ok());
        const std::string message(restored.status().message());
        if (name != kManifestFile) REQUIRE_THAT(message, Catch::Contains(name));
      }
    }
    WriteText(entry.path(), text);
  }
  REQUIRE(store.Restore("s", "m", at::kCPU).ok());
}

TEST_CASE("Snapshot: files of another snapshot are found, and the tensor is named",
          "[checkpoint]") {
  const TempDir dir;
  const CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveSnapshot("s", MakeSnapshot(/*has_window=*/true, 41), "").ok());
  REQUIRE(store.SaveSnapshot("t", MakeSnapshot(/*has_window=*/true, 51), "").ok());
  const std::string file = GENERATE(as<std::string>(), "adapter_model.safetensors",
                                    "optimizer.safetensors", "gradient.safetensors");
  fs::copy_file(dir / "t" / file, dir / "s" / file, fs::copy_options::overwrite_existing);
  const absl::Status status = store.Restore("s", "m", at::kCPU).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains(file + ": tensor ") && Catch::Contains("checksum mismatch"));
}

TEST_CASE("Snapshot: a missing file is named", "[checkpoint]") {
  const TempDir dir;
  const CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveSnapshot("s", MakeSnapshot(/*has_window=*/true), "").ok());
  const std::string file =
      GENERATE(as<std::string>(), "adapter_model.safetensors", "adapter_config.json",
               "optimizer.safetensors", "gradient.safetensors", "checkpoint_complete");
  fs::remove(dir / "s" / file);
  const absl::Status status = store.Restore("s", "m", at::kCPU).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), Catch::Contains(file));
}

TEST_CASE("Snapshot: another base model's is refused", "[checkpoint]") {
  const TempDir dir;
  REQUIRE(MakeStore(dir).SaveSnapshot("s", MakeSnapshot(/*has_window=*/false), "").ok());
  const absl::Status status = MakeStore(dir, "other").Restore("s", "m", at::kCPU).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Snapshot: one whose manifest lost its own checksum is refused", "[checkpoint]") {
  const TempDir dir;
  const CheckpointStore store = MakeStore(dir);
  REQUIRE(store.SaveSnapshot("s", MakeSnapshot(/*has_window=*/false), "").ok());
  const fs::path path = dir / "s/manifest.json";
  std::string text = ReadText(path);
  text.replace(text.find("fields_sha256"), 6, "others");
  WriteText(path, text);
  CHECK(store.Restore("s", "m", at::kCPU).status().code() == absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lathe::worker
