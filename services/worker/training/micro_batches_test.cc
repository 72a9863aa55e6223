#include "services/worker/training/micro_batches.h"
#include "services/worker/spec/dense_decoder.h"

#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace lathe::worker {
namespace {

DecoderSpec TinySpec() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 1,
                       .hidden_size = 4,
                       .intermediate_size = 4,
                       .num_heads = 1,
                       .num_kv_heads = 1,
                       .head_dim = 4,
                       .vocab_size = 4});
}

std::shared_ptr<Adapter> TinySharedAdapter() {
  return std::make_shared<Adapter>(WholeModel(TinySpec()), LoraSpec{.rank = 1}, at::kCPU);
}

using Jobs = std::vector<std::unique_ptr<TrainJob>>;

TrainJob& Add(Jobs& jobs, const std::shared_ptr<Adapter>& adapter, int64_t seq_id,
              const std::vector<size_t>& lengths, bool forward_only = false) {
  jobs.push_back(std::make_unique<TrainJob>());
  TrainJob& job = *jobs.back();
  job.adapter = adapter;
  job.request.seq_id = seq_id;
  job.request.forward_only = forward_only;
  for (const size_t length : lengths) {
    job.request.data.push_back(
        {.tokens = std::vector<int32_t>(length), .targets = std::vector<int64_t>(length)});
  }
  job.is_done.resize(lengths.size());
  job.num_pending_datums = static_cast<int64_t>(lengths.size());
  return job;
}

std::deque<MicroBatch> Plan(const Jobs& jobs, int64_t max_tokens, Numerics numerics,
                            int64_t max_bytes = int64_t{1} << 40, const TrainJob* first = nullptr) {
  const PassMemory memory(TinySpec(), 0, {.cpu_threads = 1});
  return PlanMicroBatches(
      jobs, memory,
      {.numerics = numerics, .max_tokens = max_tokens, .max_bytes = max_bytes, .first = first});
}

using Row = std::pair<int64_t, size_t>;  // seq_id and datum

std::vector<std::vector<Row>> Rows(const std::deque<MicroBatch>& batches) {
  std::vector<std::vector<Row>> result;
  for (const MicroBatch& batch : batches) {
    result.emplace_back();
    for (const RowRef& row : batch.rows) {
      result.back().push_back({row.job->request.seq_id, row.datum});
    }
  }
  return result;
}

using Expected = std::vector<std::vector<Row>>;

// Checks that a micro-batch has, per adapter, whole jobs (after the end of one that began earlier)
// or a part of one job.
void CheckGradientRule(const std::deque<MicroBatch>& batches) {
  std::map<const TrainJob*, size_t> num_seen;
  for (const MicroBatch& batch : batches) {
    std::map<const Adapter*, std::vector<const TrainJob*>> jobs;
    std::map<const TrainJob*, size_t> begun = num_seen;
    for (const RowRef& row : batch.rows) {
      if (!row.job->wants_gradient()) continue;
      auto& list = jobs[row.job->adapter.get()];
      if (list.empty() || list.back() != row.job) list.push_back(row.job);
      ++num_seen[row.job];
    }
    for (const auto& [adapter, list] : jobs) {
      CHECK(std::set<const TrainJob*>(list.begin(), list.end()).size() == list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        if (i > 0) CHECK(begun[list[i]] == 0);
        if (list.size() > 1) CHECK(num_seen[list[i]] == list[i]->request.data.size());
      }
    }
  }
}

}  // namespace

TEST_CASE("PlanMicroBatches: fast packs first-fit, longest rows first", "[training]") {
  Jobs jobs;
  Add(jobs, TinySharedAdapter(), 1, {4, 3, 3, 25, 2, 7});
  CHECK(Rows(Plan(jobs, 10, Numerics::kFast)) ==
        Expected{{{1, 3}}, {{1, 5}, {1, 1}}, {{1, 0}, {1, 2}, {1, 4}}});
}

TEST_CASE("PlanMicroBatches: exact keeps the order of a model's rows", "[training]") {
  Jobs jobs;
  Add(jobs, TinySharedAdapter(), 1, {4, 3, 5, 25, 2, 7});
  CHECK(Rows(Plan(jobs, 10, Numerics::kExact)) ==
        Expected{{{1, 0}, {1, 1}}, {{1, 2}}, {{1, 3}}, {{1, 4}, {1, 5}}});
}

TEST_CASE("PlanMicroBatches: exact goes by seq_id, not by arrival", "[training]") {
  const auto adapter = TinySharedAdapter();
  Jobs jobs;
  Add(jobs, adapter, 9, {3});
  Add(jobs, adapter, 7, {2});
  Add(jobs, adapter, 8, {8});
  CHECK(Rows(Plan(jobs, 10, Numerics::kExact)) == Expected{{{7, 0}, {8, 0}}, {{9, 0}}});
}

TEST_CASE("PlanMicroBatches: a small request shares the first pass of a large one", "[training]") {
  Jobs jobs;
  Add(jobs, TinySharedAdapter(), 1, {5, 5, 5, 5, 5, 5});
  Add(jobs, TinySharedAdapter(), 2, {4});
  const auto batches = Plan(jobs, 10, GENERATE(Numerics::kFast, Numerics::kExact));
  REQUIRE(batches.size() == 4);
  CHECK(Rows(batches)[0] == std::vector<Row>{{1, 0}, {2, 0}});
}

TEST_CASE("PlanMicroBatches: the request that is to be first has one micro-batch of its rows there",
          "[training]") {
  const bool forward_only = GENERATE(false, true);
  Jobs jobs;
  Add(jobs, TinySharedAdapter(), 1, {9});
  const TrainJob& large = Add(jobs, TinySharedAdapter(), 2, {5, 5, 5, 5}, forward_only);
  Add(jobs, TinySharedAdapter(), 3, {8});
  const auto numerics = GENERATE(Numerics::kFast, Numerics::kExact);
  CHECK(Rows(Plan(jobs, 10, numerics, int64_t{1} << 40, &large)) ==
        Expected{{{2, 0}, {2, 1}}, {{1, 0}}, {{3, 0}}, {{2, 2}, {2, 3}}});
}

TEST_CASE("PlanMicroBatches: requests of one adapter lie side by side", "[training]") {
  const auto first = TinySharedAdapter();
  Jobs jobs;
  Add(jobs, first, 1, {5});
  Add(jobs, TinySharedAdapter(), 2, {2});
  Add(jobs, first, 3, {3});
  const auto rows = Rows(Plan(jobs, 100, GENERATE(Numerics::kFast, Numerics::kExact)));
  CHECK(rows == Expected{{{1, 0}, {3, 0}, {2, 0}}});
}

TEST_CASE("PlanMicroBatches: forward_only rows come before rows with gradients", "[training]") {
  const auto adapter = TinySharedAdapter();
  Jobs jobs;
  Add(jobs, adapter, 1, {4});
  Add(jobs, adapter, 2, {9}, /*forward_only=*/true);
  CHECK(Rows(Plan(jobs, 100, Numerics::kFast)) == Expected{{{2, 0}, {1, 0}}});
}

TEST_CASE("PlanMicroBatches: what is done is not planned, what has begun goes on first",
          "[training]") {
  const auto adapter = TinySharedAdapter();
  Jobs jobs;
  Add(jobs, adapter, 5, {3});
  TrainJob& begun = Add(jobs, adapter, 6, {8, 8, 2});
  begun.gradients = adapter->GradientsOver(adapter->gradient);
  begun.is_done[0] = true;
  begun.num_pending_datums = 2;
  CHECK(Rows(Plan(jobs, 10, GENERATE(Numerics::kFast, Numerics::kExact))) ==
        Expected{{{6, 1}, {6, 2}}, {{5, 0}}});
  CHECK(Rows(Plan(jobs, 20, GENERATE(Numerics::kFast, Numerics::kExact))) ==
        Expected{{{6, 1}, {6, 2}, {5, 0}}});
}

TEST_CASE("PlanMicroBatches: gradients of many adapters are not held at once", "[training]") {
  Jobs jobs;
  for (int i = 0; i < 8; ++i) Add(jobs, TinySharedAdapter(), i, {2});
  const PassMemory memory(TinySpec(), 0, {.cpu_threads = 1});
  const PassShape alone = ShapeAlone(*jobs[0], 0);
  // The limit has room for two rows.
  const int64_t limit = 2 * memory.Bytes(alone, 0) - memory.Bytes({.wants_gradient = true}, 0);
  const auto batches = Plan(jobs, 1000, GENERATE(Numerics::kFast, Numerics::kExact), limit);
  CHECK(batches.size() == 4);
  for (const MicroBatch& batch : batches) CHECK(memory.Bytes(ShapeOf(batch), 0) <= limit);
}

TEST_CASE("PlanMicroBatches: ranks that share the rows have room for as many more", "[training]") {
  Jobs jobs;
  const TrainJob& job = Add(jobs, TinySharedAdapter(), 1, std::vector<size_t>(16, 5));
  const PassMemory memory(TinySpec(), 0, {.cpu_threads = 1});
  const int64_t gradient_bytes = job.adapter->num_parameters() * 4;
  // Two rows, and twice the gradients because the job continues after each pass.
  const int64_t bytes_of_two = memory.Bytes({.num_tokens = 10,
                                             .num_entries = 10,
                                             .gradient_bytes = 2 * gradient_bytes,
                                             .max_lora_rank = 1,
                                             .wants_gradient = true},
                                            /*num_checkpointed=*/0);
  const auto sizes = [&](const PackingOptions& options) {
    std::vector<size_t> num_rows;
    for (const MicroBatch& batch : PlanMicroBatches(jobs, memory, options)) {
      num_rows.push_back(batch.rows.size());
    }
    return num_rows;
  };
  const int64_t much = int64_t{1} << 40;
  CHECK(sizes({.max_tokens = 10, .max_bytes = much}) == std::vector<size_t>(8, 2));
  CHECK(sizes({.num_ranks = 4, .max_tokens = 10, .max_bytes = much}) == std::vector<size_t>(2, 8));
  CHECK(sizes({.max_tokens = 1000, .max_bytes = bytes_of_two}) == std::vector<size_t>(8, 2));
  CHECK(sizes({.num_ranks = 4, .max_tokens = 1000, .max_bytes = bytes_of_two}) ==
        std::vector<size_t>(2, 8));
  // One rank may have all rows of a pass.
  CHECK(sizes({.numerics = Numerics::kExact,
               .num_ranks = 4,
               .max_tokens = 1000,
               .max_bytes = bytes_of_two}) == std::vector<size_t>(8, 2));
}

TEST_CASE("PlanMicroBatches: any mix of jobs is cut by the rules and whole", "[training]") {
  const uint32_t seed = GENERATE(range(1u, 30u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return random() % limit; };
  std::vector<std::shared_ptr<Adapter>> adapters;
  for (size_t i = 0; i < 1 + below(4); ++i) adapters.push_back(TinySharedAdapter());
  Jobs jobs;
  size_t num_rows = 0;
  for (size_t i = 0; i < 1 + below(9); ++i) {
    std::vector<size_t> lengths(1 + below(6));
    for (size_t& length : lengths) length = 1 + below(14);
    num_rows += lengths.size();
    Add(jobs, adapters[below(adapters.size())], static_cast<int64_t>(i), lengths, below(4) == 0);
  }
  const auto numerics = below(2) == 0 ? Numerics::kFast : Numerics::kExact;
  const auto max_tokens = static_cast<int64_t>(6 + below(30));
  const TrainJob* const first = below(2) == 0 ? nullptr : jobs[below(jobs.size())].get();
  const auto batches = Plan(jobs, max_tokens, numerics, int64_t{1} << 40, first);
  std::set<std::pair<const TrainJob*, size_t>> seen;
  std::map<const Adapter*, Row> last;
  for (const MicroBatch& batch : batches) {
    if (batch.rows.size() > 1) CHECK(ShapeOf(batch).num_tokens <= max_tokens);
    for (const RowRef& row : batch.rows) {
      CHECK(seen.insert({row.job, row.datum}).second);
      if (numerics == Numerics::kFast || !row.job->wants_gradient()) continue;
      Row& previous = last.emplace(row.job->adapter.get(), Row{-1, 0}).first->second;
      const Row now{row.job->request.seq_id, row.datum};
      CHECK(previous < now);
      previous = now;
    }
  }
  CHECK(seen.size() == num_rows);
  CheckGradientRule(batches);
}

TEST_CASE("PlanMicroBatches: ten thousand requests and one of a hundred thousand rows",
          "[training]") {
  const auto adapter = TinySharedAdapter();
  Jobs jobs;
  for (int i = 0; i < 10000; ++i) Add(jobs, adapter, i, {1 + static_cast<size_t>(i % 16)});
  Add(jobs, TinySharedAdapter(), 1, std::vector<size_t>(100000, 9));
  const auto batches = Plan(jobs, 512, GENERATE(Numerics::kFast, Numerics::kExact));
  size_t num_rows = 0;
  for (const MicroBatch& batch : batches) num_rows += batch.rows.size();
  CHECK(num_rows == 110000);
  CHECK(batches.size() < 2000);
}

TEST_CASE("DropFinishedJobs: takes out their datums and empty micro-batches", "[training]") {
  const auto adapter = TinySharedAdapter();
  Jobs jobs;
  Add(jobs, adapter, 1, {6, 6});
  Add(jobs, adapter, 2, {3});
  auto batches = Plan(jobs, 10, Numerics::kExact);
  REQUIRE(batches.size() == 2);
  jobs[0]->is_finished = true;
  DropFinishedJobs(batches);
  CHECK(Rows(batches) == Expected{{{2, 0}}});
}

}  // namespace lathe::worker
