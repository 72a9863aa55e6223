// 64 ranks, as threads of one process, beside one rank.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/models/load_model.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/emulated_gpu/queued_ranks.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_gpu.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_temp_dir.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/rank_sums.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

// Other order of sums: of norms, and of single numbers as trainer_ranks_test.cc has it.
constexpr double kNormTolerance = 2e-5;
constexpr double kNumberTolerance = 1e-4;
const LoraSpec kManyRanksLora = {.rank = 3, .seed = 1};

// Four ranks of tp share two KV heads, and the last one's part of the vocabulary is padded.
RandomFolder ManyRanksFolder() {
  return {.num_layers = 3,
          .hidden_size = 32,
          .intermediate_size = 48,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .vocab_size = 250};
}

TrainRequest ManyRanksRequest(int64_t seq_id, int64_t num_data) {
  TrainRequest request{.request_id = std::to_string(seq_id),
                       .model_id = "m",
                       .seq_id = seq_id,
                       .loss = DefaultLoss("cross_entropy")};
  for (int64_t i = 0; i < num_data; ++i) {
    TrainDatum datum;
    for (int64_t position = 0; position < 3 + (5 * i) % 11; ++position) {
      datum.tokens.push_back(static_cast<int32_t>((seq_id + 31 * i + 7 * position) % 250));
      datum.targets.push_back((11 * i + 13 * position) % 250);
      datum.weights.push_back(0.5f);
    }
    request.data.push_back(std::move(datum));
  }
  return request;
}

struct ManyRanksResult {
  ModelPart part;
  std::vector<float> logprobs;  // of both passes
  std::vector<double> losses;
  at::Tensor change;    // of the weights by a step of AdamW after the first pass
  at::Tensor gradient;  // of the second pass, summed over the ranks
  double grad_norm = 0;
};

// An exception ends the program, as a thread cannot fail a case.
void RunPass(Trainer& trainer, TrainRequest request, ManyRanksResult& result) {
  trainer.Begin({{std::move(request)}});
  while (trainer.RunUnit()) {
  }
  for (FinishedRequest& finished : trainer.TakeFinished()) {
    const TrainOutput output = std::move(finished.output).value();
    for (const auto& own : output.logprobs) {
      result.logprobs.insert(result.logprobs.end(), own.begin(), own.end());
    }
    for (const NamedMetric& metric : output.metrics) {
      if (metric.name == "loss:sum") result.losses.push_back(metric.value);
    }
  }
}

ManyRanksResult TrainTwice(const std::filesystem::path& folder, at::Device device,
                           const RankGroups& ranks) {
  at::set_num_threads(1);
  const LoadedModel loaded =
      LoadModel(folder, device, nullptr, ComputeDtype::kFp32, ranks.tp, ranks.fsdp).value();
  const Model& model = *loaded.model;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const int64_t num_parameters = NumAdapterParameters(WholeModel(model.spec()), kManyRanksLora);
  const at::Tensor flat = at::randn({num_parameters}, generator, at::kFloat).mul_(0.05);
  const auto adapter = std::make_shared<Adapter>(
      model.part(), kManyRanksLora, CutFlat(flat, model.part(), kManyRanksLora).to(device));
  AdapterPool adapters;
  adapters.Put("m", adapter);
  Trainer trainer(model, adapters, {}, ranks.data);

  ManyRanksResult result{.part = model.part()};
  RunPass(trainer, ManyRanksRequest(1, 20), result);
  const at::Tensor before = adapter->parameters().to(at::kCPU, at::kFloat, false, /*copy=*/true);
  // With the usual epsilon a gradient that is nothing but rounding makes a whole step. Gradients of
  // the whole model are around 1.
  const auto metrics = ApplyAdamW(*adapter, {.learning_rate = 1e-2, .eps = 1},
                                  NonFiniteGradients::kFail, {.groups = ranks, .name = "m"});
  for (const NamedMetric& metric : metrics.value()) {
    if (metric.name == "grad_norm") result.grad_norm = metric.value;
  }
  result.change = adapter->parameters().to(at::kCPU) - before;
  RunPass(trainer, ManyRanksRequest(2, 9), result);  // fewer rows than data ranks
  SumGradients(*adapter, ranks);
  result.gradient = adapter->gradient.to(at::kCPU, at::kFloat, false, /*copy=*/true);
  model.Idle();
  return result;
}

}  // namespace

TEST_CASE("64 ranks as threads train as one rank does", "[training][ranks][emulated_gpu]") {
  const MeshShape shape = GENERATE(MeshShape{.dp = 4, .fsdp = 4, .tp = 4}, MeshShape{.dp = 64});
  const bool is_gpu = GENERATE(false, true);
  INFO(shape.ToString() << (is_gpu ? " on emulated GPUs" : " on CPUs"));
  const TempDir folder;
  WriteRandomFolder(folder.path(), ManyRanksFolder());
  const at::Device device = is_gpu ? EmulatedGpu() : at::Device(at::kCPU);
  const ManyRanksResult alone = TrainTwice(folder.path(), at::kCPU, {});
  REQUIRE(alone.losses.size() == 2);
  REQUIRE(alone.grad_norm > 0);
  IssueOrder order;
  const std::vector<ManyRanksResult> ranks = AsQueuedMesh(
      shape, order,
      [&](const RankGroups& groups) { return TrainTwice(folder.path(), device, groups); });
  REQUIRE(ranks.size() == 64);
  for (const ManyRanksResult& rank : ranks) {
    CHECK(rank.logprobs == ranks[0].logprobs);
    CHECK(rank.losses == ranks[0].losses);
    CHECK(rank.grad_norm == ranks[0].grad_norm);
    CHECK(RelativeDiff(rank.change, CutFlat(alone.change, rank.part, kManyRanksLora)) <
          kNumberTolerance);
    CHECK(RelativeDiff(rank.gradient, CutFlat(alone.gradient, rank.part, kManyRanksLora)) <
          kNumberTolerance);
  }
  CHECK(Distance(at::tensor(ranks[0].logprobs), at::tensor(alone.logprobs)) < kNormTolerance);
  for (size_t pass = 0; pass < alone.losses.size(); ++pass) {
    CHECK(ranks[0].losses[pass] == Approx(alone.losses[pass]).epsilon(kNormTolerance));
  }
  CHECK(ranks[0].grad_norm == Approx(alone.grad_norm).epsilon(kNormTolerance));
  CHECK(order.FindCycle() == std::vector<std::string>());
}

}  // namespace lathe::worker
