#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "libs/common/object_store/directory_store.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/testing/test_store.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

// Objects that can be away.
class StoreOfTest : public DirectoryStore {
 public:
  using DirectoryStore::DirectoryStore;
  absl::Status PutFile(const std::string& name, const fs::path& file) override {
    return is_away ? absl::UnavailableError("away") : DirectoryStore::PutFile(name, file);
  }
  absl::StatusOr<std::string> GetText(const std::string& name, int64_t max_bytes) override {
    if (is_away) return absl::UnavailableError("away");
    return DirectoryStore::GetText(name, max_bytes);
  }
  bool is_away = false;
};

// Several machines with one store.
struct StoredFixture {
  StoredFixture() { REQUIRE(CheckpointObjects(objects).Claim("id").ok()); }

  CheckpointStore Machine(const std::string& name) const {
    return CheckpointStore(dir / name, WholeModel(SmallModel()), "base", "hash",
                           std::make_shared<CheckpointCache>(
                               std::make_shared<CheckpointObjects>(objects), dir / name, 1 << 30));
  }

  TempDir dir;
  std::shared_ptr<StoreOfTest> objects = std::make_shared<StoreOfTest>(dir / "objects");
  Adapter adapter = [] {
    Adapter made(WholeModel(SmallModel()), {.rank = 3, .seed = 5}, at::kCPU);
    made.MutableParameters().normal_();
    made.exp_avg.normal_();
    made.exp_avg_sq.uniform_();
    return made;
  }();
};

TEST_CASE("Stored checkpoint: another machine loads the bits that were saved", "[checkpoint]") {
  StoredFixture f;
  const auto saved = f.Machine("one").SaveTraining("c1", StateToSave(f.adapter), "");
  REQUIRE(saved.ok());
  const CheckpointStore other = f.Machine("other");
  const auto loaded = other.Load("c1", /*with_optimizer=*/true, at::kCPU);
  REQUIRE(loaded.ok());
  CHECK(at::equal(loaded->adapter->parameters(), f.adapter.parameters()));
  CHECK(at::equal(loaded->adapter->exp_avg_sq, f.adapter.exp_avg_sq));
  const auto weights = other.LoadWeights("c1", at::kCPU);
  REQUIRE(weights.ok());
  CHECK(at::equal((*weights)->tensors.flat, f.adapter.parameters()));
  CHECK(other.Describe("c1")->model_id == "m");
  CHECK(absl::IsNotFound(other.Load("c2", false, at::kCPU).status()));
}

TEST_CASE("Stored checkpoint: a machine reads its own copy while the store is away",
          "[checkpoint]") {
  StoredFixture f;
  REQUIRE(f.Machine("one").SaveTraining("c1", StateToSave(f.adapter), "").ok());
  f.objects->is_away = true;
  CHECK(f.Machine("one").Load("c1", true, at::kCPU).ok());
  CHECK(absl::IsUnavailable(f.Machine("other").Load("c1", true, at::kCPU).status()));
}

TEST_CASE("Stored checkpoint: a damaged copy is fetched again", "[checkpoint]") {
  StoredFixture f;
  const CheckpointStore store = f.Machine("one");
  REQUIRE(store.SaveTraining("c1", StateToSave(f.adapter), "").ok());
  const std::string name = GENERATE("adapter_model.safetensors", "manifest.json");
  std::string bytes = ReadText(f.dir / "one" / "c1" / name);
  bytes[bytes.size() - 5] ^= 1;
  std::ofstream(f.dir / "one" / "c1" / name, std::ios::binary) << bytes;
  const auto loaded = store.Load("c1", true, at::kCPU);
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  CHECK(at::equal(loaded->adapter->parameters(), f.adapter.parameters()));
}

TEST_CASE("Stored checkpoint: a damaged copy is fetched again though another rank reads it",
          "[checkpoint]") {
  StoredFixture f;
  const CheckpointStore store = f.Machine("one");
  REQUIRE(store.SaveTraining("c1", StateToSave(f.adapter), "").ok());
  const auto other_rank = f.Machine("one").Fetch("c1");
  REQUIRE(other_rank.ok());
  std::ofstream(f.dir / "one" / "c1" / "adapter_model.safetensors", std::ios::binary) << "damage";
  CHECK(store.Load("c1", true, at::kCPU).ok());
}

TEST_CASE("Stored checkpoint: what is damaged in the store, too, is damaged", "[checkpoint]") {
  StoredFixture f;
  REQUIRE(f.Machine("one").SaveTraining("c1", StateToSave(f.adapter), "").ok());
  std::ofstream(f.dir / "objects/checkpoints/c1/adapter_model.safetensors", std::ios::binary)
      << "damage";
  CHECK(absl::IsDataLoss(f.Machine("other").Load("c1", true, at::kCPU).status()));
}

TEST_CASE("Stored checkpoint: a copy that this machine cannot keep is no damage", "[checkpoint]") {
  StoredFixture f;
  REQUIRE(f.Machine("one").SaveTraining("c1", StateToSave(f.adapter), "").ok());
  std::ofstream(f.dir / "other") << "a file where the cache would be";
  CHECK(absl::IsUnavailable(f.Machine("other").Load("c1", true, at::kCPU).status()));
}

TEST_CASE("Stored checkpoint: a save that is not published leaves nothing", "[checkpoint]") {
  StoredFixture f;
  const CheckpointStore store = f.Machine("one");
  f.objects->is_away = true;
  CHECK(absl::IsUnavailable(store.SaveTraining("c1", StateToSave(f.adapter), "").status()));
  CHECK_FALSE(fs::exists(f.dir / "one" / "c1"));
  f.objects->is_away = false;
  CHECK(absl::IsNotFound(store.Load("c1", true, at::kCPU).status()));
  CHECK(store.SaveTraining("c1", StateToSave(f.adapter), "").ok());
}

}  // namespace
}  // namespace lathe::worker
