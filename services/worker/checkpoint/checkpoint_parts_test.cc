#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_rank_groups.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

namespace fs = std::filesystem;

const LoraSpec kLora{.rank = 3, .seed = 5};

CheckpointStore StoreOf(const TempDir& dir, const ModelPart& part) {
  return CheckpointStore(dir.path(), part, "base", "hash");
}

// Returns the files' contents by name.
std::map<std::string, std::string> ReadFiles(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

ModelSnapshot WholeSnapshot() {
  Adapter adapter(WholeModel(TestSpec()), kLora, at::kCPU);
  adapter.MutableParameters().normal_();
  return {.model_id = "m",
          .weights = adapter.Publish(),
          .exp_avg = at::randn_like(adapter.parameters()),
          .exp_avg_sq = at::rand_like(adapter.parameters()),
          .num_steps = 7,
          .last_adam = {.learning_rate = 0.1},
          .applied_seq = 41};
}

// Returns a rank's part of the snapshot's adapter, with a gradient of its own.
Adapter PartOf(const ModelSnapshot& snapshot, const ModelPart& part, uint64_t seed) {
  Adapter adapter(part, kLora, CutFlat(snapshot.weights->tensors.flat, part, kLora));
  adapter.exp_avg = CutFlat(snapshot.exp_avg, part, kLora);
  adapter.exp_avg_sq = CutFlat(snapshot.exp_avg_sq, part, kLora);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  adapter.gradient = CutFlat(at::randn(snapshot.exp_avg.sizes(), generator), part, kLora);
  return adapter;
}

// Takes a snapshot with an open window on data x tp ranks; returns the ranks' gradients.
std::vector<at::Tensor> SaveOnRanks(const TempDir& dir, ModelSnapshot snapshot, int data, int tp) {
  snapshot.window = {42, 44};
  return AsMesh(data, tp, [&](const RankGroups& ranks) {
    const ModelPart part = TestPart(TestSpec(), ranks.tp.rank(), tp);
    const Adapter adapter = PartOf(snapshot, part, 100 + ranks.all.rank());
    const at::Tensor shares = at::full({data * adapter.sizes().shares}, NAN, at::kFloat);
    GatherShares(adapter.gradient, part, kLora, ranks, shares);
    if (ranks.all.rank() == 0) {
      ModelSnapshot whole = snapshot;
      whole.gradient = shares;
      whole.num_data_ranks = data;
      StoreOf(dir, part).SaveSnapshot("s", whole, "{}").value();
    }
    return adapter.gradient;
  });
}

// Returns the whole gradient: the sum of the shares of data x tp ranks.
at::Tensor SumOfShares(const std::vector<at::Tensor>& gradients, int64_t tp) {
  const ModelPart whole_part = WholeModel(TestSpec());
  at::Tensor whole = at::zeros({NumAdapterParameters(whole_part, kLora)}, at::kFloat);
  const std::vector<AdapterMatrix> wholes = AdapterLayout(whole_part, kLora);
  for (size_t rank = 0; rank < gradients.size(); ++rank) {
    const ModelPart part = TestPart(TestSpec(), static_cast<int64_t>(rank) % tp, tp);
    const std::vector<AdapterMatrix> parts = AdapterLayout(part, kLora);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Shard& features = parts[i].features;
      wholes[i].FactorOf(whole).narrow(1, features.begin, features.size) +=
          parts[i].FactorOf(gradients[rank]);
    }
  }
  return whole;
}

std::vector<at::Tensor> RestoreGradients(const TempDir& dir, int data, int tp) {
  std::vector<at::Tensor> gradients;
  for (int rank = 0; rank < data * tp; ++rank) {
    const CheckpointStore store = StoreOf(dir, TestPart(TestSpec(), rank % tp, tp));
    const auto restored = store.Restore("s", "m", at::kCPU, {.index = rank / tp, .size = data});
    REQUIRE(restored.ok());
    CHECK(restored->adapter->window == std::set<int64_t>{42, 44});
    gradients.push_back(restored->adapter->gradient);
  }
  return gradients;
}

TEST_CASE("Checkpoint: files of several ranks are those of one, byte for byte",
          "[checkpoint][ranks]") {
  const TempDir dir;
  const int tp = GENERATE(2, 4);
  const ModelSnapshot snapshot = WholeSnapshot();
  const CheckpointStore store = StoreOf(dir, WholeModel(TestSpec()));
  REQUIRE(store.SaveTraining("t1", snapshot, "{}").ok());
  REQUIRE(store.SaveSampler("s1", "m", *snapshot.weights, 41, "{}").ok());
  AsMesh(1, tp, [&](const RankGroups& ranks) -> int {
    const ModelPart part = TestPart(TestSpec(), ranks.tp.rank(), tp);
    const Adapter adapter = PartOf(snapshot, part, 1);
    ModelSnapshot gathered = snapshot;
    gathered.weights = GatherWeights(adapter.Publish(), part, ranks.tp);
    for (at::Tensor* moment : {&gathered.exp_avg, &gathered.exp_avg_sq}) {
      *moment = at::full_like(*moment, NAN);
    }
    GatherWhole(adapter.exp_avg, part, kLora, ranks.tp, gathered.exp_avg);
    GatherWhole(adapter.exp_avg_sq, part, kLora, ranks.tp, gathered.exp_avg_sq);
    if (ranks.tp.rank() != 0) return 0;
    StoreOf(dir, part).SaveTraining("tn", gathered, "{}").value();
    StoreOf(dir, part).SaveSampler("sn", "m", *gathered.weights, 41, "{}").value();
    return 0;
  });
  CHECK(ReadFiles(dir / "tn") == ReadFiles(dir / "t1"));
  CHECK(ReadFiles(dir / "sn") == ReadFiles(dir / "s1"));
}

TEST_CASE("Checkpoint: ranks load their parts of a file, however many they are",
          "[checkpoint][ranks]") {
  const TempDir dir;
  const int64_t tp = GENERATE(1, 2, 4);
  const ModelSnapshot snapshot = WholeSnapshot();
  REQUIRE(StoreOf(dir, WholeModel(TestSpec())).SaveTraining("t", snapshot, "{}").ok());
  for (const ModelPart& part : TestParts(TestSpec(), tp)) {
    const CheckpointStore store = StoreOf(dir, part);
    const auto loaded = store.Load("t", /*with_optimizer=*/true, at::kCPU);
    REQUIRE(loaded.ok());
    const Adapter expected = PartOf(snapshot, part, 1);
    CHECK(at::equal(loaded->adapter->parameters(), expected.parameters()));
    CHECK(at::equal(loaded->adapter->exp_avg, expected.exp_avg));
    CHECK(at::equal(loaded->adapter->exp_avg_sq, expected.exp_avg_sq));
    const auto weights = store.LoadWeights("t", at::kCPU);
    REQUIRE(weights.ok());
    CHECK(at::equal((*weights)->tensors.flat, expected.parameters()));
  }
}

TEST_CASE("Snapshot: an open window comes back bit for bit on as many ranks",
          "[checkpoint][ranks]") {
  const TempDir dir;
  const auto [data, tp] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 4}}));
  INFO("data " << data << " tp " << tp);
  const std::vector<at::Tensor> saved = SaveOnRanks(dir, WholeSnapshot(), data, tp);
  const std::vector<at::Tensor> restored = RestoreGradients(dir, data, tp);
  for (size_t rank = 0; rank < saved.size(); ++rank) CHECK(at::equal(restored[rank], saved[rank]));
}

TEST_CASE("Snapshot: an open window comes back as its sum on another number of ranks",
          "[checkpoint][ranks]") {
  const TempDir dir;
  const auto [data, tp] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 2}}));
  const auto [new_data, new_tp] = GENERATE(table<int, int>({{1, 1}, {3, 1}, {1, 4}, {2, 4}}));
  INFO("data " << data << " tp " << tp << ", then " << new_data << " and " << new_tp);
  const std::vector<at::Tensor> saved = SaveOnRanks(dir, WholeSnapshot(), data, tp);
  const at::Tensor restored = SumOfShares(RestoreGradients(dir, new_data, new_tp), new_tp);
  CHECK(at::allclose(restored, SumOfShares(saved, tp), 1e-5, 1e-5));
}

}  // namespace
}  // namespace lathe::worker
