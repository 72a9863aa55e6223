#include "services/worker/sampling/sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cpu/sampling/random_numbers.h"

namespace lathe::worker {
namespace {

constexpr double kTolerance = 1e-5;

// Draws `count` tokens from the same logits [V], each with its own sample index.
TokenSamples SampleMany(const at::Tensor& logits, const SamplingParams& params, int64_t count) {
  std::vector<SampleInput> inputs;
  for (int64_t i = 0; i < count; ++i) inputs.push_back({&params, i, 17});
  return SampleTokens(logits.unsqueeze(0).expand({count, -1}).contiguous(), inputs);
}

TEST_CASE("Philox gives the published numbers", "[sampling]") {
  // Known answers of Random123 for philox4x32-10.
  CHECK(Philox({0, 0, 0, 0}, 0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("Sampler: tokens come as often as softmax says", "[sampling]") {
  const double temperature = GENERATE(1.0, 0.5, 2.0);
  const at::Tensor logits = at::tensor({0.0f, 1.0f, -1.0f, 2.0f, 0.5f});
  constexpr int64_t kDraws = 40000;
  const TokenSamples sampled = SampleMany(logits, {.temperature = temperature, .seed = 3}, kDraws);
  const at::Tensor expected = at::softmax(logits / temperature, 0);
  double chi_squared = 0;
  for (int32_t token = 0; token < 5; ++token) {
    const double wanted = expected[token].item<double>() * kDraws;
    const double got = std::count(sampled.tokens.begin(), sampled.tokens.end(), token);
    chi_squared += (got - wanted) * (got - wanted) / wanted;
  }
  CHECK(chi_squared < 23.5);  // 4 degrees of freedom, p = 1e-4; the seed is fixed
}

TEST_CASE("Sampler: logprobs are of the scaled distribution before filters", "[sampling]") {
  at::manual_seed(4);
  const at::Tensor logits = at::randn({50}) * 3;
  const SamplingParams params = {.temperature = 0.7, .top_k = 5, .top_p = 0.8, .seed = 9};
  const TokenSamples sampled = SampleMany(logits, params, 20);
  const at::Tensor logprobs = at::log_softmax(logits / 0.7, 0);
  for (size_t i = 0; i < sampled.tokens.size(); ++i) {
    CHECK(sampled.logprobs[i] ==
          Approx(logprobs[sampled.tokens[i]].item<float>()).margin(kTolerance));
  }
}

TEST_CASE("Sampler: temperature 0 takes the largest logit, with its logprob at 1", "[sampling]") {
  const at::Tensor logits = at::tensor({0.5f, 3.0f, 2.999f, -1.0f});
  const TokenSamples sampled = SampleMany(logits, {.temperature = 0}, 3);
  CHECK(sampled.tokens == std::vector<int32_t>{1, 1, 1});
  CHECK(sampled.logprobs[0] == Approx(at::log_softmax(logits, 0)[1].item<float>()));
}

TEST_CASE("Sampler: top-k keeps the k most likely tokens", "[sampling]") {
  at::manual_seed(5);
  const at::Tensor logits = at::randn({100});
  const TokenSamples sampled = SampleMany(logits, {.top_k = 3, .seed = 1}, 500);
  const std::set<int32_t> seen(sampled.tokens.begin(), sampled.tokens.end());
  const at::Tensor best = std::get<1>(at::topk(logits, 3));
  CHECK(seen == std::set<int32_t>{best[0].item<int32_t>(), best[1].item<int32_t>(),
                                  best[2].item<int32_t>()});
}

TEST_CASE("Sampler: top-p keeps the fewest tokens that reach p", "[sampling]") {
  // Probabilities 0.5, 0.3, 0.15, 0.05.
  const at::Tensor logits = at::tensor({0.5f, 0.3f, 0.15f, 0.05f}).log();
  const auto seen = [&](const SamplingParams& params) {
    const TokenSamples sampled = SampleMany(logits, params, 500);
    return std::set<int32_t>(sampled.tokens.begin(), sampled.tokens.end());
  };
  CHECK(seen({.top_p = 0.9, .seed = 1}) == std::set<int32_t>{0, 1, 2});
  CHECK(seen({.top_p = 0.79, .seed = 1}) == std::set<int32_t>{0, 1});
  CHECK(seen({.top_p = 1e-6, .seed = 1}) == std::set<int32_t>{0});
  // Within top-k the shares are 0.625 and 0.375.
  CHECK(seen({.top_k = 2, .top_p = 0.6, .seed = 1}) == std::set<int32_t>{0});
  CHECK(seen({.top_k = 2, .top_p = 0.7, .seed = 1}) == std::set<int32_t>{0, 1});
}

TEST_CASE("Sampler: min-p keeps tokens by their share of the most likely one", "[sampling]") {
  // Probabilities 0.5, 0.3, 0.15, 0.05.
  const at::Tensor logits = at::tensor({0.5f, 0.3f, 0.15f, 0.05f}).log();
  const auto seen = [&](const SamplingParams& params) {
    const TokenSamples sampled = SampleMany(logits, params, 500);
    return std::set<int32_t>(sampled.tokens.begin(), sampled.tokens.end());
  };
  CHECK(seen({.min_p = 0.05, .seed = 1}) == std::set<int32_t>{0, 1, 2, 3});
  CHECK(seen({.min_p = 0.25, .seed = 1}) == std::set<int32_t>{0, 1, 2});
  CHECK(seen({.min_p = 0.5, .seed = 1}) == std::set<int32_t>{0, 1});
  CHECK(seen({.min_p = 1, .seed = 1}) == std::set<int32_t>{0});
  // Min-p applies after the temperature. Temperature 2 takes square roots of probability ratios.
  CHECK(seen({.temperature = 2, .min_p = 0.5, .seed = 1}) == std::set<int32_t>{0, 1, 2});
  // Min-p applies after top-p, which uses shares of all tokens: 0.5 + 0.3 reach 0.79.
  CHECK(seen({.top_p = 0.79, .min_p = 0.25, .seed = 1}) == std::set<int32_t>{0, 1});
  CHECK(seen({.top_p = 0.81, .min_p = 0.25, .seed = 1}) == std::set<int32_t>{0, 1, 2});
}

TEST_CASE("Sampler: any positive temperature is one", "[sampling]") {
  const at::Tensor logits = at::tensor({0.5f, 3.0f, 2.5f, -1.0f});
  for (const double temperature : {1e-40, 1e-300}) {
    const TokenSamples cold = SampleMany(logits, {.temperature = temperature, .seed = 1}, 5);
    CHECK(cold.tokens == std::vector<int32_t>{1, 1, 1, 1, 1});
    CHECK(cold.logprobs[0] == 0.0f);
  }
  const TokenSamples hot = SampleMany(logits, {.temperature = 1e300, .seed = 1}, 200);
  CHECK(std::set<int32_t>(hot.tokens.begin(), hot.tokens.end()).size() == 4);
  CHECK(hot.logprobs[0] == Approx(-std::log(4.0)));
}

TEST_CASE("Sampler: a row of top tokens for those who ask", "[sampling]") {
  const at::Tensor logits = at::tensor({0.5f, 3.0f, 3.0f, -1.0f}).expand({2, -1}).contiguous();
  const SamplingParams params = {.temperature = 0};
  TopkLogprobs top = {.k = 3};
  const std::vector<SampleInput> inputs = {{.params = &params}, {.params = &params, .top = &top}};
  const TokenSamples sampled = SampleTokens(logits, inputs);
  CHECK(top.length == 1);
  CHECK(top.token_ids == std::vector<int32_t>{1, 2, 0});
  CHECK(top.logprobs[0] == sampled.logprobs[1]);
  SampleTokens(at::full({1, 4}, std::numeric_limits<float>::quiet_NaN()), {&inputs[1], 1});
  CHECK(top.length == 2);
  CHECK(top.token_ids[3] == kNoTopToken);
  CHECK(top.logprobs[3] == kNoTopLogprob);
}

TEST_CASE("Sampler: top-p looks beyond its first candidates in a flat distribution", "[sampling]") {
  const TokenSamples sampled = SampleMany(at::zeros({5000}), {.top_p = 0.9, .seed = 2}, 3000);
  const std::set<int32_t> seen(sampled.tokens.begin(), sampled.tokens.end());
  CHECK(seen.size() > 2000);
}

TEST_CASE("Sampler: a sample does not depend on the rows beside it", "[sampling]") {
  at::manual_seed(6);
  const at::Tensor logits = at::randn({7, 300});
  std::vector<SamplingParams> params(7);
  std::vector<SampleInput> inputs;
  for (int64_t row = 0; row < 7; ++row) {
    params[row] = {.temperature = row == 2 ? 0.0 : 0.5 + 0.1 * row,
                   .top_k = row == 4 ? 20 : -1,
                   .top_p = row == 5 ? 0.9 : 1.0,
                   .min_p = row == 6 ? 0.05 : 0.0,
                   .seed = static_cast<uint64_t>(row % 3)};
    inputs.push_back({&params[row], row, 100 + row});
  }
  const TokenSamples together = SampleTokens(logits, inputs);
  for (int64_t row = 0; row < 7; ++row) {
    const TokenSamples alone = SampleTokens(logits.narrow(0, row, 1), {&inputs[row], 1});
    CHECK(alone.tokens[0] == together.tokens[row]);
    CHECK(alone.logprobs[0] == together.logprobs[row]);
  }
}

TEST_CASE("Sampler: seed, sample index and position each change the sample", "[sampling]") {
  const at::Tensor logits = at::zeros({4, 100000});
  const SamplingParams first = {.seed = 1};
  const SamplingParams second = {.seed = uint64_t{1} << 40};
  const std::vector<SampleInput> inputs = {
      {&first, 0, 5}, {&first, 1, 5}, {&first, 0, 6}, {&second, 0, 5}};
  const TokenSamples sampled = SampleTokens(logits, inputs);
  CHECK(std::set<int32_t>(sampled.tokens.begin(), sampled.tokens.end()).size() == 4);
}

TEST_CASE("Sampler: logits that are not finite show in the logprob", "[sampling]") {
  const at::Tensor logits = at::full({4}, std::numeric_limits<float>::quiet_NaN());
  CHECK(std::isnan(SampleMany(logits, {}, 1).logprobs[0]));
}

}  // namespace
}  // namespace lathe::worker
