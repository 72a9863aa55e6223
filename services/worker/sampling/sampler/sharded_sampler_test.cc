#include "services/worker/sampling/sampler/sampler.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/sampler/vocabulary_shard.h"
#include "services/worker/testing/test_outputs.h"
#include "services/worker/testing/test_vocabulary.h"

namespace lathe::worker {
namespace {

constexpr double kShardedTolerance = 1e-5;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Result {
  TokenSamples sampled;
  std::vector<TopkLogprobs> tops;
};

bool IsSame(const Result& a, const Result& b) {
  bool is_same =
      a.sampled.tokens == b.sampled.tokens && SameBits(a.sampled.logprobs, b.sampled.logprobs);
  for (size_t i = 0; i < a.tops.size(); ++i) {
    is_same = is_same && a.tops[i].length == b.tops[i].length &&
              a.tops[i].token_ids == b.tops[i].token_ids &&
              SameBits(a.tops[i].logprobs, b.tops[i].logprobs);
  }
  return is_same;
}

// Draws with params[i] from row i. Draw i requests the tops[i] most likely tokens, if not 0.
Result SampleInput(const at::Tensor& logits, const std::vector<SamplingParams>& params,
                   const std::vector<int64_t>& tops, const RankGroup& tp) {
  Result result;
  for (const int64_t k : tops) result.tops.push_back({.k = k});
  std::vector<lathe::worker::SampleInput> inputs;
  for (size_t i = 0; i < params.size(); ++i) {
    inputs.push_back({.params = &params[i],
                      .sample_index = static_cast<int64_t>(i % 3),
                      .position = static_cast<int64_t>(i),
                      .top = tops[i] > 0 ? &result.tops[i] : nullptr});
  }
  const VocabularyShard vocabulary = TestVocabulary(logits.size(1), tp);
  result.sampled = SampleTokens(ColumnsOf(logits, vocabulary), inputs, vocabulary);
  return result;
}

std::vector<Result> SampleAsRanks(const at::Tensor& logits,
                                  const std::vector<SamplingParams>& params,
                                  const std::vector<int64_t>& tops, int world) {
  return AsRanks(TestBackend::kLocal, world, [&](Collectives& ranks) {
    return SampleInput(logits, params, tops, RankGroup(ranks));
  });
}

// Returns parameters that cycle through all kinds of draws.
std::vector<SamplingParams> ParamsOf(int64_t num_rows) {
  std::vector<SamplingParams> params;
  for (int64_t row = 0; row < num_rows; ++row) {
    params.push_back({.temperature = row % 5 == 2 ? 0.0 : 0.4 + 0.3 * static_cast<double>(row % 4),
                      .top_k = row % 7 == 4 ? 6 : -1,
                      .top_p = row % 6 == 5 ? 0.8 : 1.0,
                      .min_p = row % 8 == 6 ? 0.05 : 0.0,
                      .seed = static_cast<uint64_t>(row / 3)});
  }
  return params;
}

TEST_CASE("Sharded samples are those of the whole row, the same on every rank", "[sampling]") {
  const int world = GENERATE(2, 3, 4);
  const int64_t vocab_size = GENERATE(45, 94, 5003);
  const float spread = GENERATE(0.5F, 3.0F, 30.0F);
  at::manual_seed(vocab_size);
  constexpr int64_t kRows = 60;
  const at::Tensor logits = at::randn({kRows, vocab_size}) * spread;
  const std::vector<SamplingParams> params = ParamsOf(kRows);
  std::vector<int64_t> tops;
  for (int64_t row = 0; row < kRows; ++row) tops.push_back(row % 4 == 1 ? 1 + row % 20 : 0);
  const Result whole = SampleInput(logits, params, tops, {});
  const std::vector<Result> ranks = SampleAsRanks(logits, params, tops, world);
  CAPTURE(world, vocab_size, spread);
  for (const Result& rank : ranks) CHECK(IsSame(rank, ranks[0]));
  CHECK(ranks[0].sampled.tokens == whole.sampled.tokens);
  for (int64_t row = 0; row < kRows; ++row) {
    CHECK(ranks[0].sampled.logprobs[row] ==
          Approx(whole.sampled.logprobs[row]).margin(kShardedTolerance));
    CHECK(ranks[0].tops[row].token_ids == whole.tops[row].token_ids);
    for (size_t i = 0; i < whole.tops[row].logprobs.size(); ++i) {
      CHECK(ranks[0].tops[row].logprobs[i] ==
            Approx(whole.tops[row].logprobs[i]).margin(kShardedTolerance));
    }
  }
}

TEST_CASE("Sharded samples: of equal logits the lower id is the more likely", "[sampling]") {
  const int world = GENERATE(2, 4);
  at::Tensor logits = at::zeros({2, 40});
  for (const int64_t token : {9, 14, 22, 39}) logits[0][token] = 2.5F;
  const std::vector<Result> ranks =
      SampleAsRanks(logits, {{.temperature = 0}, {.temperature = 0}}, {6, 40}, world);
  for (const Result& rank : ranks) {
    CHECK(rank.sampled.tokens == std::vector<int32_t>{9, 0});
    CHECK(rank.tops[0].token_ids == std::vector<int32_t>{9, 14, 22, 39, 0, 1});
    for (int32_t token = 0; token < 40; ++token) CHECK(rank.tops[1].token_ids[token] == token);
  }
}

TEST_CASE("Sharded samples: more most likely tokens than there are", "[sampling]") {
  at::manual_seed(3);
  const at::Tensor logits = at::randn({1, 30});
  const Result whole = SampleInput(logits, {{.seed = 1}}, {35}, {});
  for (const Result& rank : SampleAsRanks(logits, {{.seed = 1}}, {35}, 4)) {
    CHECK(rank.tops[0].token_ids == whole.tops[0].token_ids);
    CHECK(rank.tops[0].token_ids[30] == kNoTopToken);
    CHECK(rank.tops[0].logprobs[30] == kNoTopLogprob);
  }
}

TEST_CASE("Sharded samples: a logit that is not finite fails its row on all ranks, no other",
          "[sampling]") {
  const float bad = GENERATE(kNan, kInfinity);
  const int64_t token = GENERATE(0, 7, 38);
  at::manual_seed(9);
  at::Tensor logits = at::randn({6, 40});
  for (int64_t row = 0; row < 3; ++row) logits[row][token] = bad;
  const std::vector<SamplingParams> params = {{.temperature = 0}, {.seed = 1}, {.top_k = 3},
                                              {.temperature = 0}, {.seed = 1}, {.top_k = 3}};
  const std::vector<int64_t> tops = {2, 2, 2, 0, 2, 0};
  const Result whole = SampleInput(logits, params, tops, {});
  const std::vector<Result> ranks = SampleAsRanks(logits, params, tops, 4);
  for (const Result& rank : ranks) {
    CHECK(IsSame(rank, ranks[0]));
    CHECK(rank.sampled.tokens == whole.sampled.tokens);
    for (int64_t row = 0; row < 6; ++row)
      CHECK(std::isnan(rank.sampled.logprobs[row]) == (row < 3));
    CHECK(rank.tops[1].token_ids == std::vector<int32_t>{kNoTopToken, kNoTopToken});
  }
}

TEST_CASE("Sharded samples: a rank whose tokens are all impossible samples none", "[sampling]") {
  at::Tensor logits = at::full({3, 40}, -kInfinity);
  logits[0][33] = 1.0F;
  logits[1].narrow(0, 30, 10).fill_(-2.0F);
  const std::vector<SamplingParams> params = {{.temperature = 0}, {.seed = 4}, {.seed = 4}};
  const std::vector<Result> ranks = SampleAsRanks(logits, params, {2, 0, 0}, 4);
  for (const Result& rank : ranks) {
    CHECK(rank.sampled.tokens[0] == 33);
    CHECK(rank.sampled.logprobs[0] == 0.0F);
    CHECK(rank.tops[0].token_ids == std::vector<int32_t>{33, 0});
    CHECK(rank.sampled.tokens[1] >= 30);
    CHECK(rank.sampled.logprobs[1] == Approx(-std::log(10.0)));
    CHECK(std::isnan(rank.sampled.logprobs[2]));
  }
}

TEST_CASE("Sharded samples: any positive temperature is one", "[sampling]") {
  const at::Tensor logits = at::tensor({0.5F, 3.0F, 2.5F, -1.0F, 2.9F, 0.0F, 1.0F, 2.0F});
  const std::vector<SamplingParams> params = {{.temperature = 1e-300, .seed = 1},
                                              {.temperature = 1e-40, .seed = 2},
                                              {.temperature = 1e300, .seed = 3}};
  for (const Result& rank : SampleAsRanks(logits.expand({3, -1}), params, {0, 0, 0}, 2)) {
    CHECK(rank.sampled.tokens[0] == 1);
    CHECK(rank.sampled.tokens[1] == 1);
    CHECK(rank.sampled.logprobs[0] == 0.0F);
    CHECK(rank.sampled.logprobs[2] == Approx(-std::log(8.0)));
  }
}

}  // namespace
}  // namespace lathe::worker
