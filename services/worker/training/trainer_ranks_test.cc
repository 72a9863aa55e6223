#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/models/load_model.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_rank_groups.h"
#include "services/worker/testing/test_temp_dir.h"
#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {
namespace {

struct Grid {
  int data = 1;
  int tp = 1;
  int fsdp = 1;  // divides the data ranks
};

std::ostream& operator<<(std::ostream& out, const Grid& grid) {
  return out << "data " << grid.data << " tp " << grid.tp << " fsdp " << grid.fsdp;
}

const RandomFolder kFolder;
const std::vector<std::pair<std::string, LoraSpec>> kAdapters = {{"m1", {.rank = 3, .seed = 1}},
                                                                 {"m2", {.rank = 5, .seed = 2}}};

// Returns the flat buffer of an adapter of the whole model, with non-zero B.
at::Tensor AdapterNumbers(const DecoderSpec& spec, const LoraSpec& lora) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(lora.seed);
  return at::randn({NumAdapterParameters(WholeModel(spec), lora)}, generator, at::kFloat)
      .mul_(0.05);
}

// A model that throws in layer steps on some ranks.
class ModelThatThrows : public ModelAround {
 public:
  ModelThatThrows(const Model& model, bool throws) : ModelAround(model), throws_(throws) {}

 private:
  void BeforeLayer(const at::Tensor&) const override {
    if (throws_) throw std::runtime_error("a test's layer broke");
  }

  const bool throws_;
};

struct Output {
  std::string error;  // empty if none
  std::vector<std::vector<float>> logprobs;
  std::map<std::string, double> metrics;
};

// The final state of one rank.
struct Result {
  ModelPart part;
  int64_t weight_bytes = 0;
  std::map<std::string, Output> outputs;
  std::vector<std::string> order;  // order in which requests finished
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, std::set<int64_t>> windows;
  TrainCounters counters;
  int64_t num_units = 0;
};

using Wrap = std::function<std::unique_ptr<Model>(const Model& model, const RankGroups& ranks)>;
using Batches = std::vector<std::vector<TrainRequest>>;

struct Run {
  TrainerOptions options;
  Wrap wrap;
  // Number of steps of the last batch after which m1 is removed; -1: it is not removed.
  int64_t unload_m1_after = -1;
};

Result TrainOn(const std::filesystem::path& folder, const Batches& batches, const Run& run,
               const RankGroups& ranks) {
  const LoadedModel loaded =
      LoadModel(folder, at::kCPU, nullptr, ComputeDtype::kFp32, ranks.tp, ranks.fsdp).value();
  const std::unique_ptr<Model> wrapped = run.wrap ? run.wrap(*loaded.model, ranks) : nullptr;
  const Model& model = wrapped ? *wrapped : *loaded.model;
  AdapterPool adapters;
  std::map<std::string, std::shared_ptr<Adapter>> kept;
  for (const auto& [name, lora] : kAdapters) {
    kept[name] = std::make_shared<Adapter>(
        model.part(), lora, CutFlat(AdapterNumbers(model.spec(), lora), model.part(), lora));
    adapters.Put(name, kept[name]);
  }
  Trainer trainer(model, adapters, run.options, ranks.data);
  Result result{.part = model.part(), .weight_bytes = model.WeightBytes()};
  for (const std::vector<TrainRequest>& batch : batches) {
    trainer.Begin({batch});
    while (trainer.RunUnit()) {
      if (++result.num_units == run.unload_m1_after) adapters.Drop("m1");
    }
  }
  for (FinishedRequest& finished : trainer.TakeFinished()) {
    Output output;
    if (finished.output.ok()) {
      output.logprobs = std::move(finished.output->logprobs);
      for (const NamedMetric& m : finished.output->metrics) output.metrics[m.name] = m.value;
    } else {
      output.error = std::string(finished.output.status().ToString());
    }
    result.order.push_back(finished.request_id);
    result.outputs[finished.request_id] = std::move(output);
  }
  for (const auto& [name, adapter] : kept) {
    result.gradients[name] = adapter->gradient;
    result.windows[name] = adapter->window;
  }
  result.counters = trainer.counters();
  return result;
}

TrainDatum Datum(int64_t length, uint64_t seed, int64_t num_targets = 1) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto token = [&] {
    return at::randint(kFolder.vocab_size, {1}, generator, at::kLong).item<int64_t>();
  };
  TrainDatum datum;
  datum.num_targets = num_targets;
  for (int64_t i = 0; i < length; ++i) {
    datum.tokens.push_back(static_cast<int32_t>(token()));
    const bool is_prompt = i < length / 3;
    datum.logprobs.push_back(-4.0f);
    datum.advantages.push_back(is_prompt ? 0.0f : 0.5f + static_cast<float>(seed % 3));
    datum.mask.push_back(is_prompt ? 0.0f : 1.0f);
    datum.reference_logprobs.push_back(-4.25f);
    for (int64_t k = 0; k < num_targets; ++k) {
      datum.targets.push_back(token());
      datum.weights.push_back(is_prompt ? 0.0f : 0.5f);
    }
  }
  return datum;
}

TrainRequest Request(const std::string& id, const std::string& model_id, int64_t seq_id,
                     std::vector<int64_t> lengths, const std::string& loss = "cross_entropy",
                     int64_t num_targets = 1) {
  TrainRequest request{.request_id = id,
                       .model_id = model_id,
                       .seq_id = seq_id,
                       .forward_only = false,
                       .loss = DefaultLoss(loss)};
  for (const int64_t length : lengths) {
    request.data.push_back(
        Datum(length, 100 * static_cast<uint64_t>(seq_id) + request.data.size(), num_targets));
  }
  return request;
}

bool AreClose(const Output& a, const Output& b) {
  if (a.error != b.error || a.logprobs.size() != b.logprobs.size()) return false;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    if (a.logprobs[i].size() != b.logprobs[i].size()) return false;
    for (size_t j = 0; j < a.logprobs[i].size(); ++j) {
      if (std::abs(a.logprobs[i][j] - b.logprobs[i][j]) > 1e-4) return false;
    }
  }
  for (const auto& [name, value] : b.metrics) {
    if (!a.metrics.contains(name)) return false;
    if (std::abs(a.metrics.at(name) - value) > 1e-3 * std::max(1.0, std::abs(value))) return false;
  }
  return a.metrics.size() == b.metrics.size();
}

bool AreSame(const Output& a, const Output& b) {
  return a.error == b.error && a.logprobs == b.logprobs && a.metrics == b.metrics;
}

// Runs on a grid of ranks and checks that all ranks have the same results.
std::vector<Result> TrainOnGrid(const std::filesystem::path& folder, const Batches& batches,
                                const Run& run, const Grid& grid) {
  std::vector<Result> ranks = AsMesh(
      grid.data, grid.tp,
      [&](const RankGroups& groups) { return TrainOn(folder, batches, run, groups); }, grid.fsdp);
  for (const Result& rank : ranks) {
    CHECK(rank.order == ranks[0].order);
    CHECK(rank.windows == ranks[0].windows);
    CHECK(rank.num_units == ranks[0].num_units);
    CHECK(rank.counters.train_passes == ranks[0].counters.train_passes);
    CHECK(rank.counters.train_tokens == ranks[0].counters.train_tokens);
    CHECK(rank.counters.arena_peak_bytes == ranks[0].counters.arena_peak_bytes);
    for (const auto& [id, output] : rank.outputs) {
      CHECK(AreSame(output, ranks[0].outputs.at(id)));
    }
  }
  return ranks;
}

// Returns the sum of the ranks' shares.
at::Tensor WholeGradient(const std::vector<Result>& ranks, const std::string& model_id,
                         const LoraSpec& lora) {
  const ModelPart whole = WholeModel(ranks[0].part.whole);
  at::Tensor sum = at::zeros({NumAdapterParameters(whole, lora)});
  for (const Result& rank : ranks) AddShare(sum, rank.gradients.at(model_id), rank.part, lora);
  return sum;
}

void CheckAgainstOneRank(const std::vector<Result>& ranks, const Result& alone) {
  for (const auto& [id, output] : alone.outputs) {
    INFO(id);
    REQUIRE(ranks[0].outputs.contains(id));
    CHECK(AreClose(ranks[0].outputs.at(id), output));
  }
  CHECK(ranks[0].windows == alone.windows);
  for (const auto& [model_id, lora] : kAdapters) {
    INFO(model_id);
    const at::Tensor sum = WholeGradient(ranks, model_id, lora);
    const at::Tensor& expected = alone.gradients.at(model_id);
    if (expected.abs().max().item<double>() == 0) {
      CHECK(sum.abs().max().item<double>() == 0);
      continue;
    }
    CHECK(RelativeDiff(sum, expected) < 1e-4);
  }
}

std::vector<Grid> Grids() { return {{1, 2}, {1, 4}, {2, 1}, {3, 1}, {2, 2}}; }

}  // namespace

TEST_CASE("Trainer: ranks give what one rank gives, whatever the loss", "[trainer][ranks]") {
  const std::vector<Grid> grids = Grids();
  const Grid grid = grids[GENERATE_COPY(range(size_t{0}, grids.size()))];
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  std::vector<TrainRequest> batch;
  for (const LossProgram* loss : AllLosses()) {
    const auto seq = static_cast<int64_t>(batch.size());
    batch.push_back(Request(std::string(loss->name), seq % 2 == 0 ? "m1" : "m2", seq + 1,
                            {9, 4, 13}, std::string(loss->name)));
    if (loss->name != "cross_entropy") {
      for (TrainDatum& datum : batch.back().data) datum.weights.clear();
    }
  }
  batch.push_back(Request("targets", "m1", 50, {5, 8}, "cross_entropy", 3));
  batch.push_back(Request("silent", "m2", 51, {7, 2}));
  batch.back().forward_only = true;
  INFO(grid);
  // Default options, many passes, many chunks.
  const Run run{.options = GENERATE(TrainerOptions{}, TrainerOptions{.token_budget = 16},
                                    TrainerOptions{.head_chunk_elements = 61 * 3})};
  const Result alone = TrainOn(dir.path(), {batch, {Request("next", "m1", 60, {6})}}, run, {});
  for (const auto& [id, output] : alone.outputs) CHECK(output.error.empty());
  CheckAgainstOneRank(TrainOnGrid(dir.path(), {batch, {Request("next", "m1", 60, {6})}}, run, grid),
                      alone);
}

TEST_CASE("Trainer: ranks of data share rows of very different lengths, or fewer than they are",
          "[trainer][ranks]") {
  const Grid grid = GENERATE(Grid{2, 1}, Grid{4, 1}, Grid{2, 2});
  const std::vector<int64_t> lengths =
      GENERATE(std::vector<int64_t>{40, 1, 2, 3, 30, 5}, std::vector<int64_t>{7},
               std::vector<int64_t>{20, 20, 20, 20, 20});
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  // A request of many passes also continues in passes where a rank has none of its rows.
  const Run run{.options = {.token_budget = GENERATE(12, 4096)}};
  const Batches batches = {{Request("a", "m1", 1, lengths), Request("b", "m2", 2, {3})},
                           {Request("c", "m1", 3, {4})}};
  INFO(grid << " budget " << run.options.token_budget);
  CheckAgainstOneRank(TrainOnGrid(dir.path(), batches, run, grid),
                      TrainOn(dir.path(), batches, run, {}));
}

TEST_CASE("Trainer: no rank's share of a pass is larger than its memory", "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  // Together two ranks have room for all five rows, but one rank gets three of them.
  const Batches batches = {{Request("a", "m1", 1, {100, 100, 100, 100, 100})},
                           {Request("b", "m1", 2, {110, 1, 60, 2, 50})}};
  const Result free = TrainOn(dir.path(), batches, {}, {});
  const PassMemory memory(free.part.whole, 61, {.cpu_threads = at::get_num_threads()});
  const PassShape share{
      .num_tokens = 255,
      .num_entries = 255,
      .gradient_bytes = 2 * static_cast<int64_t>(free.gradients.at("m1").nbytes()),
      .max_lora_rank = 3,
      .wants_gradient = true};
  const Run run{.options = {.head_chunk_elements = 61,
                            .arena_bytes = memory.Bytes(share, kFolder.num_layers)}};
  const Grid grid = GENERATE(Grid{2, 1}, Grid{3, 1}, Grid{2, 1, 2});
  INFO(grid);
  const std::vector<Result> ranks = TrainOnGrid(dir.path(), batches, run, grid);
  CHECK(ranks[0].counters.arena_peak_bytes <= run.options.arena_bytes);
  CheckAgainstOneRank(ranks, free);
}

TEST_CASE("Trainer: layers that are computed again give the same on ranks", "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  const Batches batches = {{Request("a", "m1", 1, {30, 20, 25, 6})}};
  Run run{.options = {.head_chunk_elements = 61}};
  const Result free = TrainOn(dir.path(), batches, run, {});
  const Grid grid = GENERATE(Grid{2, 1}, Grid{1, 2}, Grid{2, 2}, Grid{2, 1, 2}, Grid{2, 2, 2});
  const std::vector<Result> plenty = TrainOnGrid(dir.path(), batches, run, grid);
  run.options.arena_bytes = plenty[0].counters.arena_peak_bytes - 1;
  const std::vector<Result> little = TrainOnGrid(dir.path(), batches, run, grid);
  CHECK(little[0].num_units > plenty[0].num_units);
  CheckAgainstOneRank(little, free);
}

TEST_CASE("Trainer: a datum that fails on one rank fails its request on all, and no other",
          "[trainer][ranks]") {
  const Grid grid = GENERATE(Grid{2, 1}, Grid{3, 1}, Grid{2, 2});
  const size_t bad_datum = GENERATE(0, 1, 2);
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  TrainRequest bad = Request("bad", "m1", 1, {8, 9, 10}, "importance_sampling");
  for (TrainDatum& datum : bad.data) datum.weights.clear();
  bad.data[bad_datum].logprobs.back() = -2000.0f;  // so the ratio is infinite
  const Batches batches = {{bad, Request("good", "m1", 2, {6, 5}), Request("b", "m2", 3, {4})}};
  const Result alone = TrainOn(dir.path(), batches, {}, {});
  CHECK_THAT(alone.outputs.at("bad").error, Catch::Contains("datum " + std::to_string(bad_datum)));
  const std::vector<Result> ranks = TrainOnGrid(dir.path(), batches, {}, grid);
  CheckAgainstOneRank(ranks, alone);
  CHECK(ranks[0].windows.at("m1") == std::set<int64_t>{2});
}

TEST_CASE("Trainer: an exception on one data rank fails the pass on all ranks",
          "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  const int bad_rank = GENERATE(0, 1);
  const Run run{.wrap = [&](const Model& model, const RankGroups& ranks) {
    return std::make_unique<ModelThatThrows>(model, ranks.data.rank() == bad_rank);
  }};
  const std::vector<Result> ranks = TrainOnGrid(dir.path(), {{Request("a", "m1", 1, {8, 9})}}, run,
                                                GENERATE(Grid{2, 1}, Grid{2, 1, 2}));
  CHECK_THAT(ranks[0].outputs.at("a").error,
             Catch::Contains("rank " + std::to_string(bad_rank) + ": a test's layer broke"));
  for (const Result& rank : ranks) {
    CHECK(rank.windows.at("m1").empty());
    CHECK(rank.gradients.at("m1").abs().max().item<double>() == 0);
  }
}

TEST_CASE("Trainer: a rank out of memory makes all go on in halves", "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  const Batches batches = {
      {Request("a", "m1", 1, {8, 9, 10, 8, 7, 9, 12}), Request("b", "m2", 2, {5, 6})}};
  const Run run{.wrap = [&](const Model& model, const RankGroups& ranks) {
    const int64_t max_rows = ranks.data.rank() == 1 ? 20 : 1000;
    return std::make_unique<ModelWithLittleMemory>(model, max_rows);
  }};
  const std::vector<Result> ranks =
      TrainOnGrid(dir.path(), batches, run, GENERATE(Grid{2, 1}, Grid{2, 1, 2}));
  for (const Result& rank : ranks) CHECK(rank.counters.out_of_memory_retries > 0);
  CheckAgainstOneRank(ranks, TrainOn(dir.path(), batches, {}, {}));
}

TEST_CASE("Trainer: an adapter that is unloaded during a pass fails its request on all ranks",
          "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  const Batches batches = {{Request("a", "m1", 1, {8, 9, 10}), Request("b", "m2", 2, {5, 6})}};
  const Run run{.unload_m1_after = 4};
  const std::vector<Result> ranks =
      TrainOnGrid(dir.path(), batches, run, GENERATE(Grid{2, 1}, Grid{2, 2}));
  CHECK_THAT(ranks[0].outputs.at("a").error, Catch::Contains("was unloaded"));
  CHECK(ranks[0].outputs.at("b").error.empty());
  CheckAgainstOneRank(ranks, TrainOn(dir.path(), batches, run, {}));
}

TEST_CASE("Trainer: weights of which ranks keep shares give the same bits", "[trainer][ranks]") {
  const Grid grid = GENERATE(Grid{2, 1, 2}, Grid{4, 1, 2}, Grid{3, 1, 3}, Grid{2, 2, 2});
  const bool is_bf16 = GENERATE(false, true);
  const TempDir dir;
  RandomFolder folder = kFolder;
  folder.num_layers = 7;
  folder.vocab_size = 300;  // several pieces of embedding and head
  folder.is_tied = GENERATE(true, false);
  if (is_bf16) folder.dtype = at::kBFloat16;
  WriteRandomFolder(dir.path(), folder);
  TrainRequest silent = Request("silent", "m2", 2, {7, 2, 9});
  silent.forward_only = true;
  // In some passes a rank has no rows, or no rows with gradients.
  const Batches batches = {{Request("a", "m1", 1, {40, 1, 2, 3, 30, 5}), silent},
                           {Request("b", "m1", 3, {4}), Request("c", "m2", 4, {50})}};
  const Run run{.options = {.token_budget = 12, .head_chunk_elements = 61 * 3}};
  INFO(grid);
  const std::vector<Result> whole =
      TrainOnGrid(dir.path(), batches, run, {.data = grid.data, .tp = grid.tp});
  const std::vector<Result> shared = TrainOnGrid(dir.path(), batches, run, grid);
  REQUIRE(shared.size() == whole.size());
  for (size_t rank = 0; rank < whole.size(); ++rank) {
    CHECK(shared[rank].num_units == whole[rank].num_units);
    CHECK(shared[rank].weight_bytes < whole[rank].weight_bytes);
    for (const auto& [id, output] : whole[rank].outputs) {
      CHECK(AreSame(shared[rank].outputs.at(id), output));
    }
    for (const auto& [name, gradient] : whole[rank].gradients) {
      CHECK(at::equal(shared[rank].gradients.at(name), gradient));
    }
  }
}

TEST_CASE("Trainer: with exact numerics a rank's share does not depend on other requests",
          "[trainer][ranks]") {
  const TempDir dir;
  WriteRandomFolder(dir.path(), kFolder);
  const Grid grid = GENERATE(Grid{2, 1}, Grid{2, 2});
  const auto shares = [&](const Batches& batches, int64_t token_budget) {
    const Run run{.options = {.token_budget = token_budget, .numerics = Numerics::kExact}};
    std::vector<at::Tensor> gradients;
    for (const Result& rank : TrainOnGrid(dir.path(), batches, run, grid)) {
      gradients.push_back(rank.gradients.at("m1"));
    }
    return gradients;
  };
  const TrainRequest one = Request("a", "m1", 1, {8, 9, 10, 3, 17});
  const TrainRequest two = Request("c", "m1", 2, {4, 11});
  const std::vector<at::Tensor> alone = shares({{one}, {two}}, 4096);
  const std::vector<at::Tensor> together =
      shares({{two, Request("b", "m2", 2, {30, 6}), one}}, GENERATE(12, 4096));
  for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(together[i], alone[i]));
}

}  // namespace lathe::worker
