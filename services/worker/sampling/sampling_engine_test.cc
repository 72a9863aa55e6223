#include "services/worker/sampling/sampling_engine.h"

#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include <catch2/catch.hpp>

#include "services/worker/sampling/prompt_scores.h"
#include "services/worker/testing/test_requests.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {
namespace {

constexpr double kEngineTolerance = 1e-4;  // fp32, other summation order

SampleRequest Request(const std::string& id, std::vector<int32_t> prompt, SamplingParams params,
                      int64_t num_samples = 1) {
  return {.request_id = id,
          .prompt = std::move(prompt),
          .num_samples = num_samples,
          .params = std::move(params)};
}

SamplingParams Free(int64_t max_tokens, uint64_t seed = 0, double temperature = 1.0) {
  return {.max_tokens = max_tokens, .temperature = temperature, .seed = seed, .ignore_eos = true};
}

TEST_CASE("Sampling: greedy tokens and logprobs are those of passes without a cache",
          "[sampling]") {
  const Decoder model = SmallModel();
  const auto adapter = GENERATE(std::shared_ptr<const AdapterWeights>(), RandomAdapter(4, 1));
  SamplingEngine engine(model, {.max_prefill_tokens = 7}, nullptr);
  std::vector<int32_t> tokens = Prompt(19);
  const SampleOutput output = RunOne(engine, Request("r", tokens, Free(20, 0, 0.0)), adapter);
  REQUIRE(output.sequences[0].tokens.size() == 20);
  for (size_t i = 0; i < 20; ++i) {
    const at::Tensor logits = PlainLogits(model, tokens, adapter.get())[-1];
    const auto next = logits.argmax().item<int32_t>();
    REQUIRE(output.sequences[0].tokens[i] == next);
    CHECK(output.sequences[0].logprobs[i] ==
          Approx(at::log_softmax(logits, 0)[next].item<float>()).margin(kEngineTolerance));
    tokens.push_back(next);
  }
  CHECK_FALSE(output.sequences[0].stopped);
}

TEST_CASE("Sampling: a seed gives the same tokens alone and in company", "[sampling]") {
  const Decoder model = SmallModel();
  const auto small = RandomAdapter(2, 1);
  const auto large = RandomAdapter(8, 2);
  const auto request = [&](int i) {
    return Request("r" + std::to_string(i), Prompt(5 + 3 * i, i), Free(12 + i, i), 1 + i % 3);
  };
  const auto adapter = [&](int i) { return i % 3 == 0 ? nullptr : i % 3 == 1 ? small : large; };
  SamplingEngine shared(model, {}, nullptr);
  for (int i = 0; i < 12; ++i) REQUIRE(shared.Add(request(i), adapter(i)).ok());
  const Outputs together = RunAll(shared);
  for (int i = 0; i < 12; ++i) {
    SamplingEngine own(model, {}, nullptr);
    const SampleOutput alone = RunOne(own, request(i), adapter(i));
    const SampleOutput& company = *together.at("r" + std::to_string(i));
    REQUIRE(alone.sequences.size() == company.sequences.size());
    for (size_t s = 0; s < alone.sequences.size(); ++s) {
      CHECK(alone.sequences[s].tokens == company.sequences[s].tokens);
    }
  }
}

TEST_CASE("Sampling: an inflight version moves on under a running sample, token by token",
          "[sampling]") {
  const Decoder model = SmallModel();
  const auto first = RandomAdapter(4, 1);
  const auto second = RandomAdapter(4, 2);
  SamplingEngine engine(model, {}, nullptr);
  SampleRequest request = Request("r", Prompt(9), Free(12, 0, 0.0));
  request.version_id = "m@inflight";
  REQUIRE(engine.Add(request, first, /*inflight_seq=*/3).ok());
  SampleRequest other = Request("other", Prompt(9), Free(12, 0, 0.0));
  other.version_id = "m@1";
  REQUIRE(engine.Add(other, first).ok());
  for (int pass = 0; pass < 5; ++pass) engine.RunPass();
  engine.MoveVersion("m@inflight", second, /*inflight_seq=*/7);
  const Outputs outputs = RunAll(engine);
  const SampledSequence& sequence = outputs.at("r")->sequences[0];

  REQUIRE(sequence.weights_runs.size() == 2);
  CHECK(sequence.weights_runs[0].seq_id == 3);
  CHECK(sequence.weights_runs[1].seq_id == 7);
  const int64_t num_old = sequence.weights_runs[0].num_tokens;
  CHECK(num_old + sequence.weights_runs[1].num_tokens == 12);
  // Tokens before the switch, and all tokens of the other version, come from the first weights.
  SamplingEngine plain(model, {}, nullptr);
  const SampledSequence old =
      RunOne(plain, Request("r", Prompt(9), Free(12, 0, 0.0)), first).sequences[0];
  CHECK(outputs.at("other")->sequences[0].tokens == old.tokens);
  CHECK(outputs.at("other")->sequences[0].weights_runs.empty());
  for (int64_t i = 0; i < num_old; ++i) CHECK(sequence.tokens[i] == old.tokens[i]);
  CHECK(sequence.logprobs[num_old] != Approx(old.logprobs[num_old]).margin(1e-6));
}

TEST_CASE("Sampling: the samples of a request differ and its prompt is computed once",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  const SampleOutput output = RunOne(engine, Request("r", Prompt(40), Free(10, 5), 8));
  std::set<std::vector<int32_t>> distinct;
  for (const SampledSequence& sequence : output.sequences) distinct.insert(sequence.tokens);
  CHECK(distinct.size() == 8);
  CHECK(engine.counters().prefill_tokens == 40);
  CHECK(engine.counters().decode_passes == 9);
}

TEST_CASE("Sampling: 64 requests of 32 tokens take at most 40 decode passes", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  for (int i = 0; i < 64; ++i) {
    REQUIRE(engine.Add(Request(std::to_string(i), Prompt(100, i), Free(32, i)), nullptr).ok());
  }
  CHECK(RunAll(engine).size() == 64);
  CHECK(engine.counters().decode_passes <= 40);
  CHECK(engine.counters().generated_tokens == 64 * 32);
  CHECK(engine.counters().prefill_passes == 4);
}

TEST_CASE("Sampling: a cache too small for all preempts, and the tokens stay the same",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine large(model, {}, nullptr);
  SamplingEngine small(model, {.kv_cache_bytes = BytesFor(160)}, nullptr);
  for (SamplingEngine* engine : {&large, &small}) {
    for (int i = 0; i < 6; ++i) {
      REQUIRE(engine->Add(Request(std::to_string(i), Prompt(20, i), Free(60, i), 3), nullptr).ok());
    }
  }
  const Outputs expected = RunAll(large);
  const Outputs outputs = RunAll(small);
  CHECK(large.counters().preemptions == 0);
  CHECK(small.counters().preemptions > 0);
  for (const auto& [id, output] : expected) {
    REQUIRE(outputs.at(id).ok());
    for (size_t s = 0; s < 3; ++s) {
      CHECK(outputs.at(id)->sequences[s].tokens == output->sequences[s].tokens);
    }
  }
}

TEST_CASE("Sampling: samples beyond the running limit wait their turn", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine wide(model, {}, nullptr);
  SamplingEngine narrow(model, {.max_running_samples = 3}, nullptr);
  const SampleOutput expected = RunOne(wide, Request("r", Prompt(10), Free(6, 1), 10));
  const SampleOutput output = RunOne(narrow, Request("r", Prompt(10), Free(6, 1), 10));
  for (size_t s = 0; s < 10; ++s) {
    CHECK(output.sequences[s].tokens == expected.sequences[s].tokens);
  }
  CHECK(narrow.counters().prefill_tokens == 10);
}

TEST_CASE("Sampling: a request that cannot fit the cache fails, and the others continue",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.kv_cache_bytes = BytesFor(64)}, nullptr);
  CHECK(engine.Add(Request("prompt", Prompt(64), Free(1)), nullptr).code() ==
        absl::StatusCode::kResourceExhausted);
  REQUIRE(engine.Add(Request("long", Prompt(10), Free(100)), nullptr).ok());
  REQUIRE(engine.Add(Request("short", Prompt(10), Free(10)), nullptr).ok());
  const Outputs outputs = RunAll(engine);
  CHECK(outputs.at("long").status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(outputs.at("long").status().message() ==
        "10 prompt tokens + max_tokens 100 exceed the kv cache of 64 tokens");
  CHECK(outputs.at("short").ok());
}

TEST_CASE("Sampling: samples whose prompt fills the cache take it one after the other",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine large(model, {.kv_cache_bytes = BytesFor(640)}, nullptr);
  SamplingEngine small(model, {.kv_cache_bytes = BytesFor(64), .prefix_cache = false}, nullptr);
  const SampleRequest request = Request("r", Prompt(60), Free(4, 11), 3);
  const SampleOutput expected = RunOne(large, request);
  const SampleOutput output = RunOne(small, request);
  CheckSame(output, expected);
}

TEST_CASE("Sampling: prompt logprobs are the model's, in one chunk or several", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(
      model, {.max_prefill_tokens = GENERATE(2048, 5), .head_chunk_elements = 96 * 4}, nullptr);
  SampleRequest request = Request("r", Prompt(17), Free(1));
  request.prompt_logprobs = true;
  request.topk_prompt_logprobs = 4;
  const SampleOutput output = RunOne(engine, request);
  const at::Tensor logprobs = at::log_softmax(PlainLogits(model, request.prompt, nullptr), 1);
  REQUIRE(output.prompt_logprobs.size() == 17);
  CHECK(std::isnan(output.prompt_logprobs[0]));
  const TopkLogprobs& top = *output.topk_prompt_logprobs;
  REQUIRE(top.length == 17);
  for (int64_t rank = 0; rank < 4; ++rank) {
    CHECK(top.token_ids[rank] == kNoTopToken);
    CHECK(top.logprobs[rank] == kNoTopLogprob);
  }
  const auto [best, ids] = at::topk(logprobs, 4, 1);
  for (int64_t i = 1; i < 17; ++i) {
    CHECK(output.prompt_logprobs[i] ==
          Approx(logprobs[i - 1][request.prompt[i]].item<float>()).margin(kEngineTolerance));
    for (int64_t rank = 0; rank < 4; ++rank) {
      CHECK(top.token_ids[4 * i + rank] == ids[i - 1][rank].item<int32_t>());
      CHECK(top.logprobs[4 * i + rank] ==
            Approx(best[i - 1][rank].item<float>()).margin(kEngineTolerance));
    }
  }
}

TEST_CASE("Sampling: a one-token prompt with prompt logprobs has nothing known", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  SampleRequest request = Request("r", {3}, Free(2));
  request.prompt_logprobs = true;
  const SampleOutput output = RunOne(engine, request);
  REQUIRE(output.prompt_logprobs.size() == 1);
  CHECK(std::isnan(output.prompt_logprobs[0]));
  CHECK(output.sequences[0].tokens.size() == 2);
}

TEST_CASE("Sampling: stop tokens and strings end a sequence and belong to it", "[sampling]") {
  const Decoder model = SmallModel();
  const TempDir dir;
  std::ofstream(dir / "tokenizer.json")
      << R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" <<
      [] {
        std::string vocab;  // token id -> "[id]"
        for (int id = 0; id < 96; ++id) {
          vocab +=
              (id == 0 ? "" : ",") + ("\"[" + std::to_string(id)) + "]\":" + std::to_string(id);
        }
        return vocab;
      }()
      << "}}}";
  const auto tokenizer = Tokenizer::Load(dir.path());
  REQUIRE(tokenizer.ok());
  SamplingEngine engine(model, {}, &*tokenizer);
  const std::vector<int32_t> all =
      RunOne(engine, Request("r", Prompt(5), Free(12, 1))).sequences[0].tokens;
  const int32_t fifth = all[4];
  REQUIRE(std::count(all.begin(), all.begin() + 5, fifth) == 1);
  const std::vector<int32_t> first_five(all.begin(), all.begin() + 5);

  SamplingParams by_token = Free(12, 1);
  by_token.ignore_eos = false;
  by_token.stop_tokens = {fifth};
  const SampleOutput token_stop = RunOne(engine, Request("r", Prompt(5), by_token));
  CHECK(token_stop.sequences[0].tokens == first_five);
  CHECK(token_stop.sequences[0].logprobs.size() == 5);
  CHECK(token_stop.sequences[0].stopped);

  SamplingParams by_string = Free(12, 1);
  by_string.stop_strings = {std::to_string(all[3]) + "][" + std::to_string(fifth)};
  const SampleOutput string_stop = RunOne(engine, Request("r", Prompt(5), by_string));
  CHECK(string_stop.sequences[0].tokens == first_five);
  CHECK(string_stop.sequences[0].stopped);

  SamplingEngine without(model, {}, nullptr);
  CHECK(without.Add(Request("r", Prompt(5), by_string), nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Sampling: end of sequence stops unless ignored", "[sampling]") {
  DecoderSpec spec = SmallSpec();
  const auto greedy = Free(5, 0, 0.0);
  SampleRequest request = Request("r", Prompt(5), greedy);
  std::vector<int32_t> tokens;
  {
    const Decoder model = SmallModel(spec);
    SamplingEngine engine(model, {}, nullptr);
    tokens = RunOne(engine, request).sequences[0].tokens;
  }
  spec.eos_token_ids = {tokens[0]};
  const Decoder model = SmallModel(spec);
  SamplingEngine engine(model, {}, nullptr);
  CHECK(RunOne(engine, request).sequences[0].tokens == tokens);
  request.params.ignore_eos = false;
  const SampleOutput stopped = RunOne(engine, request);
  CHECK(stopped.sequences[0].tokens == std::vector<int32_t>{tokens[0]});
  CHECK(stopped.sequences[0].stopped);
}

TEST_CASE("Sampling: a cancelled request frees its place and is not reported", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {.max_running_samples = 2}, nullptr);
  REQUIRE(engine.Add(Request("gone", Prompt(30), Free(400), 4), nullptr).ok());
  REQUIRE(engine.Add(Request("kept", Prompt(30), Free(4)), nullptr).ok());
  for (int pass = 0; pass < 3; ++pass) engine.RunPass();
  engine.Cancel("gone");
  engine.Cancel("unknown");
  const Outputs outputs = RunAll(engine);
  CHECK(outputs.size() == 1);
  CHECK(outputs.contains("kept"));
}

TEST_CASE("Sampling: an adapter with weights that are not finite fails its own request only",
          "[sampling]") {
  const Decoder model = SmallModel();
  Adapter adapter(WholeModel(SmallSpec()), {.rank = 2}, at::kCPU);
  adapter.MutableParameters().fill_(std::numeric_limits<float>::infinity());
  SamplingEngine engine(model, {}, nullptr);
  REQUIRE(engine.Add(Request("bad", Prompt(5), Free(3)), adapter.Publish()).ok());
  REQUIRE(engine.Add(Request("good", Prompt(5), Free(3)), nullptr).ok());
  const Outputs outputs = RunAll(engine);
  CHECK(outputs.at("bad").status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(outputs.at("good").ok());
}

TEST_CASE("Sampling: a request that is streamed late reports its tokens from the first on",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  // Both samples are still running when Stream is called.
  SampleRequest request = Request("late", Prompt(9), Free(6), 2);
  REQUIRE(engine.Add(std::move(request), nullptr).ok());
  engine.Stream("unknown");
  for (int pass = 0; pass < 3; ++pass) engine.RunPass();
  CHECK(engine.TakeStreamed().empty());
  for (int asked = 0; asked < 2; ++asked) {
    engine.Stream("late");
    const std::vector<SampledToken> replayed = engine.TakeStreamed();
    REQUIRE(!replayed.empty());
    std::map<int64_t, int64_t> next;  // next token index by sample
    for (const SampledToken& token : replayed) {
      CHECK(token.token_index == next[token.sample_index]++);
      CHECK_FALSE(token.finished);
    }
    CHECK(next.size() == 2);
  }
  engine.Stream("late");
  std::map<int64_t, std::vector<int32_t>> reported;
  std::map<std::string, SampleOutput> outputs;
  while (engine.HasWork()) {
    engine.RunPass();
    for (const SampledToken& token : engine.TakeStreamed()) {
      reported[token.sample_index].push_back(token.token);
      CHECK(token.finished == (token.token_index == 5));
    }
    for (FinishedSample& finished : engine.TakeFinished()) {
      outputs[finished.request_id] = *std::move(finished.output);
    }
  }
  for (int64_t index = 0; index < 2; ++index) {
    CHECK(reported[index] == outputs.at("late").sequences[index].tokens);
  }
}

TEST_CASE("Sampling: a sample that is over is reported whole to a late stream", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingOptions options;
  options.max_running_samples = 1;  // sample 0 ends before sample 1 starts
  SamplingEngine engine(model, options, nullptr);
  REQUIRE(engine.Add(Request("late", Prompt(9), Free(2), 2), nullptr).ok());
  for (int pass = 0; pass < 3; ++pass) engine.RunPass();
  engine.Stream("late");
  std::vector<bool> finished_of_first;
  for (const SampledToken& token : engine.TakeStreamed()) {
    if (token.sample_index == 0) finished_of_first.push_back(token.finished);
  }
  CHECK(finished_of_first == std::vector<bool>{false, true});
}

TEST_CASE("Sampling: a long request that is streamed anew is reported over several passes",
          "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  REQUIRE(engine.Add(Request("long", Prompt(5), Free(60), 50), nullptr).ok());
  for (int pass = 0; pass < 58; ++pass) engine.RunPass();
  std::map<int64_t, std::vector<int32_t>> reported;  // by sample
  const auto take = [&] {
    const std::vector<SampledToken> tokens = engine.TakeStreamed();
    for (const SampledToken& token : tokens) {
      std::vector<int32_t>& sample = reported[token.sample_index];
      CHECK(token.token_index == static_cast<int64_t>(sample.size()));
      sample.push_back(token.token);
    }
    return tokens.size();
  };
  engine.Stream("long");
  CHECK(take() == SamplingEngine::kMaxStreamedTokens);
  std::optional<SampleOutput> output;
  while (engine.HasWork()) {
    engine.RunPass();
    CHECK(take() <= SamplingEngine::kMaxStreamedTokens);
    for (FinishedSample& finished : engine.TakeFinished()) output = *std::move(finished.output);
  }
  for (int64_t index = 0; index < 50; ++index) {
    CHECK(reported[index] == output->sequences[index].tokens);
  }
}

TEST_CASE("Sampling: a streamed request reports every token once, in order", "[sampling]") {
  const Decoder model = SmallModel();
  SamplingEngine engine(model, {}, nullptr);
  SampleRequest streamed = Request("streamed", Prompt(9), Free(6), 2);
  streamed.streamed = true;
  REQUIRE(engine.Add(std::move(streamed), nullptr).ok());
  REQUIRE(engine.Add(Request("plain", Prompt(9), Free(6)), nullptr).ok());
  std::map<int64_t, SampledSequence> reported;  // by sample
  std::map<std::string, SampleOutput> outputs;
  while (engine.HasWork()) {
    engine.RunPass();
    for (const SampledToken& token : engine.TakeStreamed()) {
      CHECK(token.request_id == "streamed");
      SampledSequence& sequence = reported[token.sample_index];
      CHECK(token.token_index == static_cast<int64_t>(sequence.tokens.size()));
      CHECK(token.finished == (token.token_index == 5));
      CHECK_FALSE(token.stopped);
      sequence.tokens.push_back(token.token);
      sequence.logprobs.push_back(token.logprob);
    }
    for (FinishedSample& finished : engine.TakeFinished()) {
      outputs[finished.request_id] = *std::move(finished.output);
    }
  }
  REQUIRE(reported.size() == 2);
  for (const auto& [index, sequence] : reported) {
    CHECK(sequence.tokens == outputs.at("streamed").sequences[index].tokens);
    CHECK(sequence.logprobs == outputs.at("streamed").sequences[index].logprobs);
  }
}

}  // namespace
}  // namespace lathe::worker
