// Rows E3 and E4 of the fault table: damage to a checkpoint's files is detected and named before
// any of it is used. The engine holds the manifest's digest and detects a flipped bit in it
// (tests/fault/test_e_checkpoints.py).
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/testing/test_store.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "adapter_model.safetensors";
constexpr char kMoments[] = "optimizer.safetensors";

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

void Replace(const fs::path& path, const std::string& old_text, const std::string& new_text) {
  std::string text = Read(path);
  const size_t at = text.find(old_text);
  REQUIRE(at != std::string::npos);
  Write(path, text.replace(at, old_text.size(), new_text));
}

// Two saved checkpoints, "a" and "b", of adapters that differ in every number.
struct Fixture {
  TempDir dir;
  CheckpointStore store{dir.path(), WholeModel(SmallModel()), "base", "hash"};
  Adapter adapter{WholeModel(SmallModel()), {.rank = 3, .seed = 5}, at::kCPU};

  Fixture() {
    for (const char* name : {"b", "a"}) {
      adapter.MutableParameters().normal_();
      adapter.exp_avg.normal_();
      adapter.exp_avg_sq.uniform_();
      ++adapter.num_steps;
      REQUIRE(store.SaveTraining(name, StateToSave(adapter), "").ok());
    }
  }
  absl::Status Load() { return store.Load("a", /*with_optimizer=*/true, at::kCPU).status(); }
};

TEST_CASE("E3: of 1,000 flipped bits in the data files every one is refused and its file named",
          "[checkpoint]") {
  Fixture f;
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::string names[] = {kWeights, kMoments, "adapter_config.json"};
  for (int flip = 0; flip < 1000; ++flip) {
    const std::string& name = names[random() % std::size(names)];
    const fs::path path = f.dir / ("a/" + name);
    const auto at = static_cast<std::streamoff>(random() % fs::file_size(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const char before = (file.seekg(at), static_cast<char>(file.get()));
    file.seekp(at).put(static_cast<char>(before ^ (1 << (random() % 8)))).flush();
    const absl::Status refused = f.Load();
    REQUIRE(refused.code() == absl::StatusCode::kDataLoss);
    REQUIRE_THAT(std::string(refused.message()), Catch::Contains(name));
    file.seekp(at).put(before);
  }
  CHECK(f.Load().ok());
}

struct Damage {
  std::string what;
  std::function<void(const fs::path& dir)> inflict;
  std::string named;
};

TEST_CASE("E4: files that are cut, longer, swapped, missing or edited are refused",
          "[checkpoint]") {
  const Damage damage = GENERATE(
      Damage{"weights cut by a byte",
             [](const fs::path& dir) {
               fs::resize_file(dir / kWeights, fs::file_size(dir / kWeights) - 1);
             },
             kWeights},
      Damage{"moments cut to nothing",
             [](const fs::path& dir) { fs::resize_file(dir / kMoments, 0); }, kMoments},
      Damage{"weights longer by a byte",
             [](const fs::path& dir) { Write(dir / kWeights, Read(dir / kWeights) + "x"); },
             kWeights},
      Damage{"weights and moments swapped",
             [](const fs::path& dir) {
               fs::rename(dir / kWeights, dir / "other");
               fs::rename(dir / kMoments, dir / kWeights);
               fs::rename(dir / "other", dir / kMoments);
             },
             kWeights},
      Damage{"weights of another checkpoint",
             [](const fs::path& dir) {
               Write(dir / kWeights, Read(dir.parent_path() / "b" / kWeights));
             },
             kWeights},
      Damage{"moments missing", [](const fs::path& dir) { fs::remove(dir / kMoments); }, kMoments},
      Damage{"weights a directory",
             [](const fs::path& dir) {
               fs::remove(dir / kWeights);
               fs::create_directory(dir / kWeights);
             },
             kWeights},
      Damage{"manifest missing", [](const fs::path& dir) { fs::remove(dir / "manifest.json"); },
             "manifest.json"},
      Damage{"manifest empty", [](const fs::path& dir) { Write(dir / "manifest.json", ""); },
             "manifest.json"},
      Damage{"manifest cut in half",
             [](const fs::path& dir) {
               fs::resize_file(dir / "manifest.json", fs::file_size(dir / "manifest.json") / 2);
             },
             "manifest.json"},
      Damage{"manifest of another checkpoint",
             [](const fs::path& dir) {
               Write(dir / "manifest.json", Read(dir.parent_path() / "b/manifest.json"));
             },
             kWeights},
      Damage{
          "manifest that says another rank",
          [](const fs::path& dir) { Replace(dir / "manifest.json", "\"rank\": 3", "\"rank\": 2"); },
          ""},
      Damage{"manifest that says another base",
             [](const fs::path& dir) { Replace(dir / "manifest.json", "\"hash\"", "\"hush\""); },
             "manifest.json: checksum mismatch"});
  CAPTURE(damage.what);
  Fixture f;
  REQUIRE(f.Load().ok());
  damage.inflict(f.dir / "a");
  const absl::Status refused = f.Load();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(std::string(refused.message()), Catch::Contains(damage.named));
}

}  // namespace
}  // namespace lathe::worker
