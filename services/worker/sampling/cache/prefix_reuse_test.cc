// Reuse of cached prefixes across requests, and passes with both prompts and running samples.
#include "services/worker/sampling/sampling_engine.h"

#include <numeric>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_requests.h"

namespace lathe::worker {
namespace {

// Returns a request of tenant "t".
SampleRequest Request(const std::string& id, std::vector<int32_t> prompt, int64_t max_tokens,
                      int64_t num_samples = 1) {
  return {.request_id = id,
          .tenant_id = "t",
          .prompt = std::move(prompt),
          .num_samples = num_samples,
          .params = {.max_tokens = max_tokens, .seed = 3, .ignore_eos = true}};
}

TEST_CASE("Prefix reuse: a tenant's second request computes what the first one did not",
          "[sampling]") {
  const Decoder model = SmallModel();
  const auto adapter = GENERATE(std::shared_ptr<const AdapterWeights>(), RandomAdapter(4, 1));
  SamplingEngine engine(model, {}, nullptr);
  const SampleOutput first = RunOne(engine, Request("a", Prompt(40), 6), adapter);
  CHECK(first.prompt_cache_hit_tokens == 0);
  const SampleOutput second = RunOne(engine, Request("b", Prompt(40), 6), adapter);
  CHECK(second.prompt_cache_hit_tokens == 32);
  CHECK(engine.counters().prefill_tokens == 48);
  CHECK(engine.counters().looked_up_tokens == 80);
  CHECK(engine.counters().prompt_hit_tokens == 32);
  CheckSame(first, second);
  // The last token is always computed, because its logits are needed.
  CHECK(RunOne(engine, Request("c", Prompt(32), 6), adapter).prompt_cache_hit_tokens == 16);
  CHECK(engine.kv_usage().num_used == 0);
  CHECK(engine.kv_usage().num_idle > 0);
}

TEST_CASE("Prefix reuse: not by others, not under other weights, not when it is off",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  RunOne(engine, Request("a", Prompt(40), 2));
  SampleRequest other = Request("b", Prompt(40), 2);
  other.tenant_id = "other";
  CHECK(RunOne(engine, other).prompt_cache_hit_tokens == 0);
  SampleRequest adapted = Request("c", Prompt(40), 2);
  adapted.version_id = "v";
  CHECK(RunOne(engine, adapted, RandomAdapter(4, 1)).prompt_cache_hit_tokens == 0);
  SampleRequest anonymous = Request("d", Prompt(40), 2);
  anonymous.tenant_id = "";
  CHECK(RunOne(engine, anonymous).prompt_cache_hit_tokens == 0);
  anonymous.request_id = "e";
  CHECK(RunOne(engine, anonymous).prompt_cache_hit_tokens == 0);

  SamplingEngine without(model, {.prefix_cache = false}, nullptr);
  RunOne(without, Request("a", Prompt(40), 2));
  CHECK(RunOne(without, Request("b", Prompt(40), 2)).prompt_cache_hit_tokens == 0);
  CHECK(without.kv_usage().num_idle == 0);
}

TEST_CASE("Prefix reuse: the next message of a conversation finds what was generated",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  const SampleOutput first = RunOne(engine, Request("a", Prompt(20), 40));
  std::vector<int32_t> prompt = Prompt(20);
  const std::vector<int32_t>& answer = first.sequences[0].tokens;
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  const std::vector<int32_t> question = Prompt(9, 50);
  prompt.insert(prompt.end(), question.begin(), question.end());
  const SampleOutput second = RunOne(engine, Request("b", prompt, 10, 2));
  CHECK(second.prompt_cache_hit_tokens == 48);  // whole blocks of 59 computed tokens

  SamplingEngine without(model, {.prefix_cache = false}, nullptr);
  CheckSame(second, RunOne(without, Request("b", prompt, 10, 2)));
}

TEST_CASE("Prefix reuse: a prompt that is scored is computed, and others find it", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  SampleRequest scored = Request("a", Prompt(40), 2);
  scored.prompt_logprobs = true;
  const SampleOutput first = RunOne(engine, scored);
  scored.request_id = "b";
  const SampleOutput second = RunOne(engine, scored);
  CHECK(second.prompt_cache_hit_tokens == 0);
  for (size_t i = 1; i < 40; ++i) CHECK(first.prompt_logprobs[i] == second.prompt_logprobs[i]);
  CHECK(RunOne(engine, Request("c", Prompt(40), 2)).prompt_cache_hit_tokens == 32);
  // Rows before the first scored row may come from the cache. Row 29 scores position 30.
  scored.request_id = "d";
  scored.prompt_logprobs_last_n = 10;
  const SampleOutput suffix = RunOne(engine, scored);
  CHECK(suffix.prompt_cache_hit_tokens == 16);
  for (size_t i = 30; i < 40; ++i) CHECK(first.prompt_logprobs[i] == suffix.prompt_logprobs[i]);
}

TEST_CASE("Prefix reuse: of requests that come together one computes the prompt", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  for (int i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt = Prompt(100);
    prompt.push_back(i);
    REQUIRE(engine.Add(Request(std::to_string(i), prompt, 4), nullptr).ok());
  }
  REQUIRE(engine.Add(Request("other", Prompt(30, 2), 4), nullptr).ok());
  engine.RunPass();
  CHECK(engine.counters().prefill_tokens == 101 + 30);  // "other" does not wait
  const Outputs outputs = RunAll(engine);
  CHECK(engine.counters().prefill_tokens == 101 + 30 + 7 * 5);
  CHECK(outputs.at("0")->prompt_cache_hit_tokens == 0);
  CHECK(outputs.at("7")->prompt_cache_hit_tokens == 96);
}

TEST_CASE("Prefix reuse: what was computed under weights that moved on is never found",
          "[sampling]") {
  const Decoder model = SmallModel();
  const auto first = RandomAdapter(4, 1);
  const auto second = RandomAdapter(4, 2);
  const auto request = [](const std::string& id, int64_t max_tokens) {
    SampleRequest inflight = Request(id, Prompt(40), max_tokens);
    inflight.version_id = "m@inflight";
    return inflight;
  };
  SamplingEngine engine(model, {}, nullptr);
  RunOne(engine, request("a", 2), first, 3);
  CHECK(RunOne(engine, request("b", 2), first, 3).prompt_cache_hit_tokens == 32);
  REQUIRE(engine.Add(request("running", 60), first, 3).ok());
  for (int pass = 0; pass < 5; ++pass) engine.RunPass();
  engine.MoveVersion("m@inflight", second, 7);
  CHECK(engine.kv_usage().num_idle == 0);
  RunAll(engine);
  CHECK(engine.kv_usage().num_idle == 0);
  const SampleOutput output = RunOne(engine, request("c", 20), second, 7);
  CHECK(output.prompt_cache_hit_tokens == 0);
  SamplingEngine fresh(model, {}, nullptr);
  CheckSame(output, RunOne(fresh, request("c", 20), second, 7));
  CHECK(RunOne(engine, request("d", 2), second, 7).prompt_cache_hit_tokens == 32);
}

TEST_CASE("Prefix reuse: a dropped version's blocks are free, those of others stay", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  RunOne(engine, Request("a", Prompt(40), 2));
  SampleRequest request = Request("b", Prompt(40), 2);
  request.version_id = "v";
  RunOne(engine, request, RandomAdapter(4, 1));
  CHECK(engine.kv_usage().num_idle == 4);
  engine.DropVersion("v");
  CHECK(engine.kv_usage().num_idle == 2);
  CHECK(RunOne(engine, Request("c", Prompt(40), 2)).prompt_cache_hit_tokens == 32);
}

TEST_CASE("Prefix reuse: idle blocks make room before any sample is preempted", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.kv_cache_bytes = BytesFor(10 * 16)}, nullptr);
  for (int i = 0; i < 12; ++i) RunOne(engine, Request(std::to_string(i), Prompt(40, i), 30));
  CHECK(engine.counters().preemptions == 0);
  CHECK(engine.counters().kv_evictions > 12);
  // The most recently used blocks are still cached.
  CHECK(RunOne(engine, Request("again", Prompt(40, 11), 2)).prompt_cache_hit_tokens == 32);
  CHECK(RunOne(engine, Request("old", Prompt(40, 1), 2)).prompt_cache_hit_tokens == 0);
}

TEST_CASE("Mixed passes: a long prompt holds running samples up by one chunk per token",
          "[sampling]") {
  const Decoder model = SmallModel();
  const SamplingOptions options{.max_prefill_tokens = 64, .max_prefill_tokens_beside_decode = 16};
  SamplingEngine engine(model, options, nullptr);
  SampleRequest running = Request("running", Prompt(10), 60);
  running.streamed = true;
  REQUIRE(engine.Add(running, nullptr).ok());
  engine.RunPass();
  REQUIRE(engine.TakeStreamed().size() == 1);
  REQUIRE(engine.Add(Request("long", Prompt(300, 2), 4), nullptr).ok());
  for (int pass = 1; pass <= 18; ++pass) {
    engine.RunPass();
    CHECK(engine.TakeStreamed().size() == 1);
    CHECK(engine.counters().prefill_tokens == 10 + 16 * pass);
  }
  engine.Cancel("running");
  REQUIRE(engine.Add(Request("alone", Prompt(200, 3), 4), nullptr).ok());
  engine.RunPass();
  CHECK(engine.counters().prefill_tokens == 10 + 300 + 52);  // the rest of "long", 52 of "alone"
  CHECK(RunAll(engine).size() == 2);
}

}  // namespace
}  // namespace lathe::worker
