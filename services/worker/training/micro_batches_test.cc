#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "services/worker/training/micro_batches.h"

namespace lathe::worker {
namespace {

std::shared_ptr<Adapter> SmallAdapter() {
  const ModelSpec model{.family = "qwen3",
                        .num_layers = 1,
                        .hidden_size = 4,
                        .intermediate_size = 4,
                        .num_heads = 1,
                        .num_kv_heads = 1,
                        .head_dim = 4,
                        .vocab_size = 4};
  return std::make_shared<Adapter>(model, LoraSpec{.rank = 1}, at::kCPU);
}

std::unique_ptr<TrainJob> Job(const std::shared_ptr<Adapter>& adapter,
                              const std::vector<size_t>& lengths) {
  auto job = std::make_unique<TrainJob>();
  job->adapter = adapter;
  for (const size_t length : lengths) {
    job->request.data.push_back({.tokens = std::vector<int32_t>(length)});
  }
  return job;
}

std::vector<int64_t> Lengths(const MicroBatch& batch) {
  std::vector<int64_t> lengths;
  for (const RowRef& row : batch.rows) lengths.push_back(row.num_tokens());
  return lengths;
}

}  // namespace

TEST_CASE("PlanMicroBatches: fills to the budget and leaves a longer datum alone", "[training]") {
  std::vector<std::unique_ptr<TrainJob>> jobs;
  jobs.push_back(Job(SmallAdapter(), {4, 3, 3, 25, 2}));
  const auto batches = PlanMicroBatches(jobs, /*token_budget=*/10);
  REQUIRE(batches.size() == 3);
  CHECK(Lengths(batches[0]) == std::vector<int64_t>{3, 3, 4});
  CHECK(Lengths(batches[1]) == std::vector<int64_t>{25});
  CHECK(Lengths(batches[2]) == std::vector<int64_t>{2});
  CHECK(jobs[0]->spans_micro_batches);
}

TEST_CASE("PlanMicroBatches: requests of one adapter lie side by side", "[training]") {
  const auto first = SmallAdapter();
  const auto second = SmallAdapter();
  std::vector<std::unique_ptr<TrainJob>> jobs;
  jobs.push_back(Job(first, {5}));
  jobs.push_back(Job(second, {2}));
  jobs.push_back(Job(first, {3}));
  const auto batches = PlanMicroBatches(jobs, 100);
  REQUIRE(batches.size() == 1);
  CHECK(Lengths(batches[0]) == std::vector<int64_t>{3, 5, 2});
  CHECK_FALSE(jobs[0]->spans_micro_batches);
}

TEST_CASE("PlanMicroBatches: forward_only rows come before rows with gradients", "[training]") {
  const auto adapter = SmallAdapter();
  std::vector<std::unique_ptr<TrainJob>> jobs;
  jobs.push_back(Job(adapter, {1}));
  jobs.push_back(Job(adapter, {9}));
  jobs[1]->request.forward_only = true;
  CHECK(Lengths(PlanMicroBatches(jobs, 100)[0]) == std::vector<int64_t>{9, 1});
}

TEST_CASE("DropFinishedJobs: takes out their datums and empty micro-batches", "[training]") {
  const auto adapter = SmallAdapter();
  std::vector<std::unique_ptr<TrainJob>> jobs;
  jobs.push_back(Job(adapter, {6, 6}));
  jobs.push_back(Job(adapter, {3}));
  auto batches = PlanMicroBatches(jobs, 10);
  REQUIRE(batches.size() == 2);
  jobs[0]->is_finished = true;
  DropFinishedJobs(batches);
  REQUIRE(batches.size() == 1);
  CHECK(Lengths(batches[0]) == std::vector<int64_t>{3});
}

}  // namespace lathe::worker
