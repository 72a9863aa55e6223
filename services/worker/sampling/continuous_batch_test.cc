// Which samples run together, seen from outside: who ends after how many passes.
#include "services/worker/sampling/continuous_batch.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_requests.h"

namespace lathe::worker {
namespace {

SampleRequest RequestOf(const std::string& tenant, const std::string& id, int64_t num_samples,
                        int64_t max_tokens, int64_t prompt_length = 9) {
  return {.request_id = id,
          .tenant_id = tenant,
          .version_id = "m",
          .prompt = Prompt(prompt_length, static_cast<int32_t>(id.size())),
          .num_samples = num_samples,
          .params = {.max_tokens = max_tokens, .seed = 3, .ignore_eos = true}};
}

void Add(SamplingEngine& engine, SampleRequest request) {
  REQUIRE(engine.Add(std::move(request), nullptr).ok());
}

// Runs passes until nothing is left. Returns the number of the pass in which each request ended.
std::map<std::string, int> PassOfEnd(SamplingEngine& engine) {
  std::map<std::string, int> ends;
  for (int pass = 1; engine.HasWork(); ++pass) {
    REQUIRE(pass < 10000);
    engine.RunPass();
    for (const FinishedSample& finished : engine.TakeFinished()) {
      REQUIRE(finished.output.ok());
      ends[finished.request_id] = pass;
    }
  }
  return ends;
}

TEST_CASE("ContinuousBatch: a newcomer waits for one turn, not for all samples before it",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.max_running_samples = 4}, nullptr);
  Add(engine, RequestOf("a", "large", 80, 5));
  for (int pass = 0; pass < 3; ++pass) engine.RunPass();
  SampleRequest newcomer = RequestOf("b", "single", 1, 4);
  SECTION("of another tenant") {}
  SECTION("of the same tenant, of another version") {
    newcomer.tenant_id = "a";
    newcomer.version_id = "n";
  }
  Add(engine, std::move(newcomer));
  const std::map<std::string, int> ends = PassOfEnd(engine);
  // At most the 5 tokens of a running sample and the newcomer's 4, and its prompt.
  CHECK(ends.at("single") <= 10);
  // 80 samples of 5 tokens on 4 rows take 100 passes, and the newcomer one row for 4 of them.
  CHECK(ends.at("large") <= 102);
}

TEST_CASE("ContinuousBatch: a newcomer's long prompt is computed while others have the rows",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.max_running_samples = 2, .max_prefill_tokens_beside_decode = 8},
                        nullptr);
  Add(engine, RequestOf("a", "large", 60, 6));
  for (int pass = 0; pass < 2; ++pass) engine.RunPass();
  Add(engine, RequestOf("b", "single", 1, 2, /*prompt_length=*/80));
  const std::map<std::string, int> ends = PassOfEnd(engine);
  // The prompt begins with the next free row and takes 10 passes. Then the row after that.
  CHECK(ends.at("single") <= 6 + 10 + 6 + 2);
  // No row is idle meanwhile: 60 samples of 6 tokens on 2 rows.
  CHECK(ends.at("large") <= 180 + 4);
}

TEST_CASE("ContinuousBatch: tenants have equal rows, whoever came first and asks for more",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.max_running_samples = 4}, nullptr);
  Add(engine, RequestOf("a", "large", 100, 4));
  Add(engine, RequestOf("a", "more", 100, 4));
  for (int pass = 0; pass < 2; ++pass) engine.RunPass();
  Add(engine, RequestOf("b", "group", 20, 4));
  const std::map<std::string, int> ends = PassOfEnd(engine);
  // 20 samples of 4 tokens on 2 rows take 40 passes.
  CHECK(ends.at("group") <= 40 + 6);
  CHECK(ends.at("group") >= 40);
}

TEST_CASE("ContinuousBatch: turns and a full cache change no sample", "[sampling]") {
  const Decoder model = SmallModel();
  const auto request = [](int i) {
    SampleRequest made = RequestOf(std::string(1, static_cast<char>('a' + i % 3)),
                                   "r" + std::to_string(i), 1 + 5 * (i % 2), 20 + 7 * (i % 4),
                                   /*prompt_length=*/5 + 11 * (i % 5));
    made.version_id = i % 4 == 0 ? "n" : "m";
    made.params.seed = static_cast<uint64_t>(i);
    return made;
  };
  SamplingEngine shared(model,
                        {.kv_cache_bytes = BytesFor(192),
                         .max_running_samples = 5,
                         .max_prefill_tokens = 13,
                         .max_prefill_tokens_beside_decode = 7},
                        nullptr);
  constexpr int kNumRequests = 14;
  Outputs outputs;
  for (int i = 0; shared.HasWork() || i < kNumRequests; ++i) {
    REQUIRE(i < 10000);
    if (i < kNumRequests) Add(shared, request(i));
    shared.RunPass();
    for (FinishedSample& finished : shared.TakeFinished()) {
      outputs.emplace(finished.request_id, std::move(finished.output));
    }
  }
  CHECK(shared.counters().preemptions > 0);
  REQUIRE(outputs.size() == kNumRequests);
  for (int i = 0; i < kNumRequests; ++i) {
    INFO("request " << i);
    SamplingEngine alone(model, {}, nullptr);
    const SampleOutput expected = RunOne(alone, request(i));
    const SampleOutput& output = *outputs.at("r" + std::to_string(i));
    REQUIRE(output.sequences.size() == expected.sequences.size());
    for (size_t s = 0; s < expected.sequences.size(); ++s) {
      CHECK(output.sequences[s].tokens == expected.sequences[s].tokens);
    }
  }
  CHECK(shared.kv_usage().num_used == 0);
}

TEST_CASE("ContinuousBatch: cancelled samples give their rows to the others", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.max_running_samples = 4}, nullptr);
  Add(engine, RequestOf("a", "gone", 50, 40));
  Add(engine, RequestOf("b", "kept", 12, 4));
  for (int pass = 0; pass < 2; ++pass) engine.RunPass();
  engine.Cancel("gone");
  const std::map<std::string, int> ends = PassOfEnd(engine);
  CHECK(ends.size() == 1);
  // 12 samples of 4 tokens on 4 rows, two of which were another's for two passes.
  CHECK(ends.at("kept") <= 14);
  CHECK(engine.kv_usage().num_used == 0);
}

}  // namespace
}  // namespace lathe::worker
