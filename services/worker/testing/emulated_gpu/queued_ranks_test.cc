// Ranks on emulated GPUs whose collectives only queue.
#include "services/worker/testing/emulated_gpu/queued_ranks.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/layers/fsdp_units.h"
#include "services/worker/models/load_model.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_gpu.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_random_folder.h"
#include "services/worker/testing/test_temp_dir.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

constexpr double kFp32Tolerance = 2e-5;  // other order of sums
const LoraSpec kLora = {.rank = 4, .seed = 1};

TrainDatum DatumOfRanks(int64_t length, int64_t first_token) {
  TrainDatum datum;
  for (int64_t i = 0; i < length; ++i) {
    datum.tokens.push_back(static_cast<int32_t>((first_token + 7 * i * i) % 61));
    datum.targets.push_back((first_token + 5 * i) % 61);
    datum.weights.push_back(1);
  }
  return datum;
}

// Ends the program: a thread cannot fail a case.
void ThrowIfFailed(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// Returns the logprobs of two passes, with a step of AdamW between them.
std::vector<float> TrainOnRank(const std::filesystem::path& folder, at::Device device,
                               const RankGroups& ranks) {
  const LoadedModel loaded =
      LoadModel(folder, device, nullptr, ComputeDtype::kFp32, ranks.tp, ranks.fsdp).value();
  const Model& model = *loaded.model;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor flat =
      at::randn({NumAdapterParameters(WholeModel(model.spec()), kLora)}, generator, at::kFloat);
  AdapterPool adapters;
  adapters.Put("m",
               std::make_shared<Adapter>(model.part(), kLora,
                                         CutFlat(flat.mul_(0.05), model.part(), kLora).to(device)));
  Trainer trainer(model, adapters, {}, ranks.data);
  std::vector<float> logprobs;
  for (int64_t step = 1; step <= 2; ++step) {
    trainer.Begin({{TrainRequest{.request_id = "r",
                                 .model_id = "m",
                                 .seq_id = step,
                                 .loss = DefaultLoss("cross_entropy"),
                                 .data = {DatumOfRanks(19, 1), DatumOfRanks(9, 2),
                                          DatumOfRanks(23, 3), DatumOfRanks(5, 4)}}}});
    while (trainer.RunUnit()) {
    }
    for (FinishedRequest& finished : trainer.TakeFinished()) {
      ThrowIfFailed(finished.output.status());
      for (const auto& own : finished.output->logprobs) {
        logprobs.insert(logprobs.end(), own.begin(), own.end());
      }
    }
    const auto stepped = ApplyAdamW(*adapters.Find("m"), {.learning_rate = 1e-2},
                                    NonFiniteGradients::kFail, {.groups = ranks, .name = "m"});
    ThrowIfFailed(stepped.status());
  }
  model.Idle();
  return logprobs;
}

}  // namespace

TEST_CASE("Sharded training whose collectives only queue gives what one rank gives",
          "[training][emulated_gpu]") {
  const auto [data, tp] = GENERATE(std::pair(2, 1), std::pair(1, 2), std::pair(2, 2));
  CAPTURE(data, tp);
  const TempDir folder;
  WriteRandomFolder(folder.path(), {});
  const std::vector<float> expected = TrainOnRank(folder.path(), at::kCPU, {});
  REQUIRE(expected.size() == 2 * (19 + 9 + 23 + 5));
  const at::Device gpu = EmulatedGpu();
  IssueOrder order;
  const auto results = AsQueuedMesh({.fsdp = data, .tp = tp}, order, [&](const RankGroups& ranks) {
    return TrainOnRank(folder.path(), gpu, ranks);
  });
  for (const std::vector<float>& logprobs : results) {
    REQUIRE(logprobs.size() == expected.size());
    CHECK(Distance(at::tensor(logprobs), at::tensor(expected)) < kFp32Tolerance);
  }
  CHECK(order.size() > 50);
  CHECK(order.FindCycle() == std::vector<std::string>());
}

TEST_CASE("A block that is used before the wait for its gather holds wrong data",
          "[layers][emulated_gpu]") {
  const at::Device gpu = EmulatedGpu();
  IssueOrder order;
  const auto results = AsQueuedMesh({.fsdp = 2}, order, [&](const RankGroups& ranks) {
    FsdpUnits units({128, 128}, gpu, ranks.fsdp);
    for (int64_t block = 0; block < 2; ++block) {
      units.Buffer(block).fill_(static_cast<int64_t>(7 + block));
      units.Reshard(block);
    }
    const auto sum_of = [&](int64_t block) {
      return units.Buffer(block).to(at::kCPU).sum().item<int64_t>();
    };
    units.Unshard(0, 1);
    const int64_t first = sum_of(0);
    const int64_t too_early = sum_of(1);  // no wait for the gather ahead
    units.Unshard(1);
    return std::vector<int64_t>{first, too_early, sum_of(1)};
  });
  for (const std::vector<int64_t>& sums : results) {
    CHECK(sums == std::vector<int64_t>{7 * 128, 255 * 128, 8 * 128});
  }
}

TEST_CASE("Ranks that issue collectives of two communicators in another order are found",
          "[collectives][emulated_gpu]") {
  const bool is_other_order = GENERATE(false, true);
  IssueOrder order;
  const auto results = AsQueuedMesh({.fsdp = 2}, order, [&](const RankGroups& ranks) {
    const at::Tensor own = at::full({2}, 1.0 + ranks.all.rank());
    const at::Tensor a = at::empty({2, 2}), b = at::empty({2, 2});
    // Both are pending at once, so no rank waits for the other here. A device may.
    const bool b_first = is_other_order && ranks.all.rank() == 1;
    PendingCollective of_b;
    if (b_first) of_b = ranks.data.StartGather("b", own, b);
    const PendingCollective of_a = ranks.fsdp.StartGather("a", own, a);
    if (!b_first) of_b = ranks.data.StartGather("b", own, b);
    ranks.fsdp.Wait(of_a);
    ranks.data.Wait(of_b);
    return (a + b).sum().item<double>();
  });
  CHECK(results == std::vector<double>{12, 12});
  CHECK(order.FindCycle().empty() == !is_other_order);
}

}  // namespace lathe::worker
