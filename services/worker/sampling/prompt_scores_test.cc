#include "services/worker/sampling/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/test_model.h"
#include "services/worker/testing/test_outputs.h"

namespace lathe::worker {
namespace {

constexpr double kScoreTolerance = 1e-4;
constexpr int64_t kScoreVocab = 96;

std::vector<int32_t> ScoredPrompt(int64_t length) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>((i * i + 3) % 90));
  return prompt;
}

SampleRequest Request(std::vector<int32_t> prompt, double temperature = 1.0) {
  return {.request_id = "r",
          .prompt = std::move(prompt),
          .params = {.max_tokens = 1, .temperature = temperature, .seed = 8, .ignore_eos = true}};
}

// Returns targets of `rows` rows with `columns` cells each. Two thirds of the cells name a token.
PromptTargets Targets(int64_t rows, int64_t columns) {
  PromptTargets targets{.num_columns = columns, .offsets = {0}};
  for (int64_t cell = 0; cell < rows * columns; ++cell) {
    targets.tokens.push_back(cell % 3 == 1 ? -1 : (cell * 7) % kScoreVocab);
    if ((cell + 1) % columns == 0) targets.offsets.push_back(cell + 1);
  }
  return targets;
}

SampleOutput Run(const Model& model, const SamplingOptions& options, SampleRequest request) {
  SamplingEngine engine(model, options, nullptr);
  REQUIRE(engine.Add(std::move(request), nullptr).ok());
  while (engine.HasWork()) {
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) return *std::move(finished.output);
  }
  return {};
}

// Counts the rows that pass through the head.
class CountingModel : public ModelAround {
 public:
  using ModelAround::ModelAround;
  at::Tensor Logits(const at::Tensor& h, const std::vector<Segment>& segments) const override {
    num_rows += h.size(0);
    return ModelAround::Logits(h, segments);
  }
  mutable int64_t num_rows = 0;

 private:
  void BeforeLayer(const at::Tensor&) const override {}
};

TEST_CASE("Prompt scores: targets are scored where they are named", "[sampling]") {
  const Decoder model = SmallModel();
  SampleRequest request = Request(ScoredPrompt(17), /*temperature=*/0.4);
  request.targets = std::make_shared<const PromptTargets>(Targets(16, 3));
  const SampleOutput output = Run(model, {}, request);
  const at::Tensor logprobs = at::log_softmax(PlainLogits(model, request.prompt, nullptr), 1);
  const std::vector<float>& scored = output.target_prompt_logprobs->logprobs;
  REQUIRE(scored.size() == 48);
  for (int64_t cell = 0; cell < 48; ++cell) {
    const int64_t token = request.targets->tokens[cell];
    if (token < 0) {
      CHECK(scored[cell] == 0.0f);
    } else {
      CHECK(scored[cell] ==
            Approx(logprobs[cell / 3][token].item<float>()).margin(kScoreTolerance));
    }
  }
  CHECK(output.prompt_logprobs.empty());
}

TEST_CASE("Prompt scores: sparse rows may have any number of cells", "[sampling]") {
  const Decoder model = SmallModel();
  SampleRequest request = Request(ScoredPrompt(5));
  const PromptTargets dense{
      .num_columns = 2, .offsets = {0, 2, 4, 6, 8}, .tokens = {9, 8, 7, 6, 5, 4, 3, 2}};
  const PromptTargets sparse{.num_columns = 50,
                             .is_sparse = true,
                             .offsets = {0, 0, 1, 1, 3},
                             .columns = {49, 0, 30},
                             .tokens = {6, 2, 3}};
  request.targets = std::make_shared<const PromptTargets>(dense);
  const std::vector<float> all = Run(model, {}, request).target_prompt_logprobs->logprobs;
  request.targets = std::make_shared<const PromptTargets>(sparse);
  CHECK(Run(model, {}, request).target_prompt_logprobs->logprobs ==
        std::vector<float>{all[3], all[7], all[6]});
}

TEST_CASE("Prompt scores: chunks change no bit of any score", "[sampling]") {
  const Decoder model = SmallModel();
  SampleRequest request = Request(ScoredPrompt(40), /*temperature=*/0.8);
  request.prompt_logprobs = true;
  request.topk_prompt_logprobs = 5;
  request.prompt_alt_tokens_k = 6;
  request.topk_sample_logprobs = 4;
  request.targets = std::make_shared<const PromptTargets>(Targets(39, 2));
  const SampleOutput whole = Run(model, {}, request);
  const SampleOutput cut =
      Run(model, {.max_prefill_tokens = 7, .head_chunk_elements = kScoreVocab * 3}, request);
  CHECK(SameBits(whole.prompt_logprobs, cut.prompt_logprobs));
  CHECK(whole.topk_prompt_logprobs->token_ids == cut.topk_prompt_logprobs->token_ids);
  CHECK(SameBits(whole.topk_prompt_logprobs->logprobs, cut.topk_prompt_logprobs->logprobs));
  CHECK(SameBits(whole.target_prompt_logprobs->logprobs, cut.target_prompt_logprobs->logprobs));
  CHECK(whole.prompt_alt_tokens->tokens == cut.prompt_alt_tokens->tokens);
  CHECK(SameBits(whole.prompt_alt_tokens->logprobs, cut.prompt_alt_tokens->logprobs));
  CHECK(whole.sequences[0].topk_logprobs->logprobs == cut.sequences[0].topk_logprobs->logprobs);
}

// Returns a request with random options. The same seed gives the same request.
SampleRequest RandomRequest(const std::string& id, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  SampleRequest request{.request_id = id, .prompt = ScoredPrompt(2 + below(50))};
  const auto num_rows = static_cast<int64_t>(request.prompt.size()) - 1;
  request.num_samples = 1 + below(3);
  request.params = {.max_tokens = 1 + below(20),
                    .temperature = below(4) == 0 ? 0.0 : 0.5 + 0.1 * static_cast<double>(below(9)),
                    .top_k = below(2) == 0 ? -1 : 1 + below(30),
                    .top_p = below(2) == 0 ? 1.0 : 0.8,
                    .min_p = below(2) == 0 ? 0.0 : 0.02,
                    .seed = seed,
                    .ignore_eos = true};
  request.prompt_logprobs = below(3) > 0;
  request.topk_prompt_logprobs = below(4);
  request.topk_sample_logprobs = below(4);
  request.prompt_alt_tokens_k = below(3);
  if (request.prompt_logprobs && below(2) == 0) {
    request.prompt_logprobs_last_n = 1 + below(num_rows);
  }
  if (below(2) == 0) {
    request.targets = std::make_shared<const PromptTargets>(Targets(num_rows, 1 + below(4)));
  }
  return request;
}

void CheckSameScores(const SampleOutput& a, const SampleOutput& b) {
  REQUIRE(a.sequences.size() == b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    CHECK(a.sequences[i].tokens == b.sequences[i].tokens);
    CHECK(SameBits(a.sequences[i].logprobs, b.sequences[i].logprobs));
    if (!a.sequences[i].topk_logprobs) continue;
    CHECK(a.sequences[i].topk_logprobs->token_ids == b.sequences[i].topk_logprobs->token_ids);
    CHECK(SameBits(a.sequences[i].topk_logprobs->logprobs, b.sequences[i].topk_logprobs->logprobs));
  }
  CHECK(SameBits(a.prompt_logprobs, b.prompt_logprobs));
  if (a.topk_prompt_logprobs) {
    CHECK(a.topk_prompt_logprobs->token_ids == b.topk_prompt_logprobs->token_ids);
    CHECK(SameBits(a.topk_prompt_logprobs->logprobs, b.topk_prompt_logprobs->logprobs));
  }
  if (a.target_prompt_logprobs) {
    CHECK(SameBits(a.target_prompt_logprobs->logprobs, b.target_prompt_logprobs->logprobs));
  }
  if (a.prompt_alt_tokens) {
    CHECK(a.prompt_alt_tokens->tokens == b.prompt_alt_tokens->tokens);
    CHECK(SameBits(a.prompt_alt_tokens->logprobs, b.prompt_alt_tokens->logprobs));
  }
}

TEST_CASE("Sampling: whatever is asked for, company changes no bit of it", "[sampling]") {
  const Decoder model = GENERATE(0, 1) == 0 ? SmallModel() : SmallBf16Model();
  const uint32_t first_seed = GENERATE(1u, 100u, 200u);
  CAPTURE(first_seed);
  const std::vector<std::shared_ptr<const AdapterWeights>> adapters = {nullptr, RandomAdapter(2, 1),
                                                                       RandomAdapter(8, 2)};
  const int64_t bytes_per_token = KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32);
  SamplingEngine crowded(model,
                         {.kv_cache_bytes = 400 * bytes_per_token,
                          .max_prefill_tokens = 23,
                          .head_chunk_elements = kScoreVocab * 5},
                         nullptr);
  for (uint32_t i = 0; i < 12; ++i) {
    const SampleRequest request = RandomRequest(std::to_string(i), first_seed + i);
    REQUIRE(crowded.Add(request, adapters[i % 3]).ok());
    if (i % 3 == 0) crowded.RunPass();
  }
  std::map<std::string, SampleOutput> outputs;
  while (crowded.HasWork()) {
    crowded.RunPass();
    for (FinishedSample& finished : crowded.TakeFinished()) {
      outputs.emplace(finished.request_id, *std::move(finished.output));
    }
  }
  REQUIRE(outputs.size() == 12);
  for (uint32_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    SamplingEngine own(model, {}, nullptr);
    REQUIRE(own.Add(RandomRequest("own", first_seed + i), adapters[i % 3]).ok());
    while (own.HasWork()) {
      own.RunPass();
      for (const FinishedSample& finished : own.TakeFinished()) {
        CheckSameScores(*finished.output, outputs.at(std::to_string(i)));
      }
    }
  }
}

TEST_CASE("Prompt scores: a token has the same logprob by whatever name it is asked for",
          "[sampling]") {
  const Decoder model = SmallBf16Model();
  SampleRequest request = Request(ScoredPrompt(15));
  request.prompt_logprobs = true;
  request.topk_prompt_logprobs = kScoreVocab;
  request.prompt_alt_tokens_k = 3;
  PromptTargets own{.num_columns = 1, .offsets = {0}};
  for (int64_t i = 1; i < 15; ++i) {
    own.tokens.push_back(request.prompt[i]);
    own.offsets.push_back(i);
  }
  request.targets = std::make_shared<const PromptTargets>(own);
  const SampleOutput output = Run(model, {}, request);
  const TopkLogprobs& top = *output.topk_prompt_logprobs;
  const auto ranked = [&](int64_t position, int32_t token) {
    const auto begin = top.token_ids.begin() + position * kScoreVocab;
    return top.logprobs[std::find(begin, begin + kScoreVocab, token) - top.token_ids.begin()];
  };
  for (int64_t i = 1; i < 15; ++i) {
    CHECK(output.target_prompt_logprobs->logprobs[i - 1] == output.prompt_logprobs[i]);
    CHECK(ranked(i, request.prompt[i]) == output.prompt_logprobs[i]);
    for (int64_t j = 3 * (i - 1); j < 3 * i; ++j) {
      CHECK(ranked(i, output.prompt_alt_tokens->tokens[j]) ==
            output.prompt_alt_tokens->logprobs[j]);
    }
  }
}

TEST_CASE("Prompt scores: the last n alone are scored, with the same bits", "[sampling]") {
  const Decoder model = SmallModel();
  SampleRequest request = Request(ScoredPrompt(20));
  request.prompt_logprobs = true;
  request.topk_prompt_logprobs = 2;
  const SampleOutput whole = Run(model, {}, request);
  const int64_t last_n = GENERATE(1, 6, 19);
  request.prompt_logprobs_last_n = last_n;
  const SampleOutput some = Run(model, {.max_prefill_tokens = 4}, request);
  for (int64_t i = 0; i < 20; ++i) {
    const bool is_scored = i >= 20 - last_n;
    CHECK(std::isnan(some.prompt_logprobs[i]) != is_scored);
    if (is_scored) CHECK(some.prompt_logprobs[i] == whole.prompt_logprobs[i]);
    for (int64_t j = 2 * i; j < 2 * i + 2; ++j) {
      const TopkLogprobs& top = *some.topk_prompt_logprobs;
      CHECK(top.token_ids[j] == (is_scored ? whole.topk_prompt_logprobs->token_ids[j] : 0));
      CHECK(top.logprobs[j] ==
            (is_scored ? whole.topk_prompt_logprobs->logprobs[j] : kNoTopLogprob));
    }
  }
}

TEST_CASE("Prompt scores: rows that are not requested do not pass the head", "[sampling]") {
  const Decoder plain = SmallModel();
  const CountingModel model(plain);
  SampleRequest request = Request(ScoredPrompt(30));
  int64_t expected = 0;
  SECTION("none is asked about") { CHECK(FirstScoredRow(request) == 29); }
  SECTION("a suffix") {
    request.prompt_logprobs = true;
    request.prompt_logprobs_last_n = 4;
    expected = 4;
    CHECK(FirstScoredRow(request) == 25);
  }
  SECTION("two targets") {
    PromptTargets targets{.num_columns = 1, .tokens = std::vector<int64_t>(29, -1)};
    for (int64_t i = 0; i <= 29; ++i) targets.offsets.push_back(i);
    targets.tokens[3] = targets.tokens[20] = 5;
    request.targets = std::make_shared<const PromptTargets>(targets);
    expected = 2;
    CHECK(FirstScoredRow(request) == 3);
  }
  SECTION("alternative tokens") {
    request.prompt_alt_tokens_k = 1;
    expected = 29;
    CHECK(FirstScoredRow(request) == 0);
  }
  Run(model, {.max_prefill_tokens = 8}, request);
  CHECK(model.num_rows == expected + 1);  // plus the row that predicts the first token
}

TEST_CASE("Prompt scores: alternative tokens have the logprobs of their distribution",
          "[sampling]") {
  const Decoder model = SmallModel();
  const double temperature = GENERATE(0.0, 0.5, 1.0);
  SampleRequest request = Request(ScoredPrompt(12), temperature);
  request.params.top_k = 1;  // must not affect alternatives
  request.prompt_alt_tokens_k = 20;
  const SampleOutput output = Run(model, {}, request);
  const at::Tensor logits = PlainLogits(model, request.prompt, nullptr);
  const at::Tensor logprobs = at::log_softmax(temperature == 0 ? logits : logits / temperature, 1);
  const PromptAltTokens& sampled = *output.prompt_alt_tokens;
  REQUIRE(sampled.tokens.size() == 11 * 20);
  int64_t num_largest = 0;
  for (int64_t i = 0; i < 11 * 20; ++i) {
    CHECK(sampled.logprobs[i] ==
          Approx(logprobs[i / 20][sampled.tokens[i]].item<float>()).margin(kScoreTolerance));
    num_largest += sampled.tokens[i] == logits[i / 20].argmax().item<int32_t>() ? 1 : 0;
  }
  CHECK((num_largest == 11 * 20) == (temperature == 0));
  // Alternatives do not depend on the number of samples. They depend on the seed, unless greedy.
  request.num_samples = 3;
  CHECK(Run(model, {}, request).prompt_alt_tokens->tokens == sampled.tokens);
  request.params.seed = 9;
  CHECK((Run(model, {}, request).prompt_alt_tokens->tokens == sampled.tokens) ==
        (temperature == 0));
}

TEST_CASE("Sampled positions: the most likely tokens beside the sampled one", "[sampling]") {
  const Decoder model = SmallModel();
  SampleRequest request = Request(ScoredPrompt(6), /*temperature=*/0.5);
  request.params.max_tokens = 8;
  request.params.top_k = 2;
  request.num_samples = 2;
  request.topk_sample_logprobs = 100;  // more than the vocabulary has
  const SampleOutput output = Run(model, {}, request);
  for (const SampledSequence& sequence : output.sequences) {
    const TopkLogprobs& top = *sequence.topk_logprobs;
    REQUIRE(top.length == 8);
    REQUIRE(top.token_ids.size() == 800);
    std::vector<int32_t> tokens = request.prompt;
    for (int64_t i = 0; i < 8; ++i) {
      const at::Tensor logits = PlainLogits(model, tokens, nullptr)[-1] / 0.5;
      const auto [best, ids] = at::topk(at::log_softmax(logits, 0), kScoreVocab);
      const auto ranked = top.token_ids.begin() + 100 * i;
      const auto found = std::find(ranked, ranked + 2, sequence.tokens[i]);
      REQUIRE(found != ranked + 2);
      CHECK(top.logprobs[found - top.token_ids.begin()] == sequence.logprobs[i]);
      for (int64_t rank = 0; rank < kScoreVocab; ++rank) {
        CHECK(top.token_ids[100 * i + rank] == ids[rank].item<int32_t>());
        CHECK(top.logprobs[100 * i + rank] ==
              Approx(best[rank].item<float>()).margin(kScoreTolerance));
      }
      for (int64_t rank = kScoreVocab; rank < 100; ++rank) {
        CHECK(top.token_ids[100 * i + rank] == kNoTopToken);
        CHECK(top.logprobs[100 * i + rank] == kNoTopLogprob);
      }
      tokens.push_back(sequence.tokens[i]);
    }
  }
}

TEST_CASE("Sampled positions: top tokens survive preemption", "[sampling]") {
  const Decoder model = SmallModel();
  const int64_t bytes_per_token = KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32);
  SampleRequest request = Request(ScoredPrompt(20));
  request.params.max_tokens = 60;
  request.num_samples = 4;
  request.topk_sample_logprobs = 3;
  const SampleOutput free = Run(model, {}, request);
  const SampleOutput crowded = Run(model, {.kv_cache_bytes = 160 * bytes_per_token}, request);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(free.sequences[i].topk_logprobs->length == 60);
    CHECK(free.sequences[i].topk_logprobs->token_ids ==
          crowded.sequences[i].topk_logprobs->token_ids);
    CHECK(SameBits(free.sequences[i].topk_logprobs->logprobs,
                   crowded.sequences[i].topk_logprobs->logprobs));
  }
}

}  // namespace
}  // namespace lathe::worker
