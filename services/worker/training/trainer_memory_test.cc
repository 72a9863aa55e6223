// Tests of the trainer's memory limits.
#include <catch2/catch.hpp>

#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {
namespace {

constexpr int64_t kHeadChunk = 96 * 4;  // four rows of logits

// Returns the smallest arena for a pass of `num_tokens` tokens of m1 with all layers checkpointed.
int64_t LeastArena(int64_t num_tokens, int64_t num_buffers = 1) {
  const PassMemory memory(SmallSpec(), kHeadChunk, {.cpu_threads = at::get_num_threads()});
  return memory.Bytes({.num_tokens = num_tokens,
                       .num_entries = num_tokens,
                       .gradient_bytes = num_buffers * 4 * TestAdapter(3, 1)->num_parameters(),
                       .max_lora_rank = 3,
                       .wants_gradient = true},
                      SmallSpec().num_layers());
}

}  // namespace

TEST_CASE("Trainer: checkpointed layers give the same bits", "[training]") {
  const TrainRequest request = TestRequest("r", "m1", 1, {TestDatum(40, 3)});
  TestTrainer kept({.head_chunk_elements = kHeadChunk});
  TestTrainer checkpointed({.head_chunk_elements = kHeadChunk, .arena_bytes = LeastArena(40)});
  auto expected = kept.Run({request});
  auto outputs = checkpointed.Run({request});
  REQUIRE(outputs.at("r").ok());
  CHECK(checkpointed.trainer.counters().train_passes == 1);
  CHECK(checkpointed.trainer.counters().arena_peak_bytes <
        kept.trainer.counters().arena_peak_bytes);
  CHECK(outputs.at("r")->logprobs == expected.at("r")->logprobs);
  CHECK(at::equal(checkpointed.adapter("m1").gradient, kept.adapter("m1").gradient));
}

TEST_CASE("Trainer: a datum that fits no pass is refused with the numbers, the neighbour runs",
          "[training]") {
  TestTrainer bench({.head_chunk_elements = kHeadChunk, .arena_bytes = LeastArena(40)});
  auto outputs = bench.Run({TestRequest("large", "m1", 1, {TestDatum(300, 1)}),
                            TestRequest("small", "m1", 2, {TestDatum(9, 1)})});
  REQUIRE(outputs.at("large").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(
      std::string(outputs.at("large").status().message()),
      Catch::Contains("datum 0 has 300 tokens and needs") && Catch::Contains("GiB are available"));
  CHECK(outputs.at("small").ok());
  CHECK(bench.adapter("m1").window == std::set<int64_t>{2});
}

TEST_CASE("Trainer: forward_only needs less memory", "[training]") {
  TrainRequest request = TestRequest("r", "m1", 1, {TestDatum(60, 1)});
  TestTrainer bench({.head_chunk_elements = kHeadChunk, .arena_bytes = LeastArena(40)});
  CHECK_FALSE(bench.Run({request}).at("r").ok());
  request.forward_only = true;
  CHECK(bench.Run({request}).at("r").ok());
}

TEST_CASE("Trainer: a pass that runs out of memory is run again in halves", "[training]") {
  const std::vector<TrainRequest> requests = {
      TestRequest("a", "m1", 1, {TestDatum(9, 1), TestDatum(4, 2), TestDatum(10, 30)}),
      TestRequest("b", "m2", 1, {TestDatum(7, 5)}, "ppo")};
  const Numerics numerics = GENERATE(Numerics::kFast, Numerics::kExact);
  const ModelWithLittleMemory model(TestModel(), 12);
  TestTrainer bench({.token_budget = 40, .numerics = numerics}, model);
  TestTrainer plenty;
  auto outputs = bench.Run(requests);
  auto expected = plenty.Run(requests);
  REQUIRE(outputs.at("a").ok());
  REQUIRE(outputs.at("b").ok());
  CHECK(bench.trainer.counters().out_of_memory_retries == 2);
  CHECK(outputs.at("a")->metrics[0].value == Approx(expected.at("a")->metrics[0].value));
  CHECK(RelativeDiff(bench.adapter("m1").gradient, plenty.adapter("m1").gradient) < 1e-5);
  CHECK(RelativeDiff(bench.adapter("m2").gradient, plenty.adapter("m2").gradient) < 1e-5);
}

TEST_CASE("Trainer: a request that still runs out of memory after three retries fails alone",
          "[training]") {
  const ModelWithLittleMemory model(TestModel(), 12);
  TestTrainer bench({.numerics = Numerics::kExact}, model);
  // The first datum of "large" has been added when its second one fails.
  auto outputs = bench.Run({TestRequest("large", "m1", 1, {TestDatum(12, 9), TestDatum(13, 1)}),
                            TestRequest("small", "m2", 2, {TestDatum(12, 1)})});
  REQUIRE(outputs.at("large").status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(outputs.at("large").status().message()),
             Catch::Contains("tokens after 3 retries: it was to take"));
  CHECK(bench.trainer.pass_bytes() == 0);
  CHECK(IsZero(bench.adapter("m1").gradient));
  CHECK(bench.adapter("m1").window.empty());
  CHECK(outputs.at("small").ok());
  CHECK(bench.Run({TestRequest("next", "m1", 3, {TestDatum(12, 1)})}).at("next").ok());
}

TEST_CASE("Trainer: a request that comes while a long one runs does not wait for its end",
          "[training]") {
  TestTrainer bench({.token_budget = 20});
  const std::vector<TrainDatum> data(8, TestDatum(12, 1));
  bench.trainer.Begin({{TestRequest("long", "m1", 1, data)}});
  REQUIRE(bench.trainer.RunUnit());
  REQUIRE(bench.trainer.RunUnit());
  bench.trainer.Begin({{TestRequest("short", "m2", 1, {TestDatum(6, 1)})}});
  while (bench.trainer.RunUnit()) {
  }
  const auto finished = bench.trainer.TakeFinished();
  REQUIRE(finished.size() == 2);
  CHECK(finished[0].request_id == "short");
  CHECK(bench.trainer.counters().train_passes == 8);
}

TEST_CASE("Trainer: a job cut into passes goes on beside requests that come later", "[training]") {
  const Numerics numerics = GENERATE(Numerics::kFast, Numerics::kExact);
  const std::vector<TrainDatum> data = {TestDatum(12, 1), TestDatum(11, 2), TestDatum(6, 3),
                                        TestDatum(9, 4), TestDatum(12, 5)};
  const TrainRequest first = TestRequest("first", "m1", 1, data);
  const TrainRequest second = TestRequest("second", "m1", 2, {TestDatum(8, 9)});
  TestTrainer bench({.token_budget = 20, .numerics = numerics});
  bench.trainer.Begin({{first}});
  while (bench.trainer.counters().train_passes < 2) REQUIRE(bench.trainer.RunUnit());
  bench.trainer.Begin({{second}});
  REQUIRE(bench.Finish().size() == 2);
  TestTrainer alone, other;
  alone.Run({first});
  other.Run({second});
  CHECK(RelativeDiff(bench.adapter("m1").gradient,
                     alone.adapter("m1").gradient + other.adapter("m1").gradient) < 1e-5);
  CHECK(bench.adapter("m1").window == std::set<int64_t>{1, 2});
}

}  // namespace lathe::worker
