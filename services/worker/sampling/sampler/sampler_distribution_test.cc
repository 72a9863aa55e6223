// Chi-square tests of draws against their expected distributions. Seeds are fixed, so results are
// reproducible.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/sampling/sampler/row_distribution.h"
#include "services/worker/testing/test_vocabulary.h"

namespace lathe::worker {
namespace {

constexpr int64_t kVocab = 60;
constexpr double kLeastP = 1e-4;

// Returns the upper tail of the chi-square distribution, by the Wilson-Hilferty approximation.
double PValue(double chi_squared, double degrees) {
  const double variance = 2.0 / (9.0 * degrees);
  const double z = (std::cbrt(chi_squared / degrees) - (1.0 - variance)) / std::sqrt(variance);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// Returns logits with few likely and many unlikely tokens, and two pairs of equal logits.
std::vector<double> Logits() {
  std::vector<double> logits;
  for (int64_t i = 0; i < kVocab; ++i) {
    logits.push_back(static_cast<float>(3.0 * std::sin(1.7 * static_cast<double>(i * i % 59))));
  }
  logits[11] = logits[40];
  logits[7] = logits[23];
  return logits;
}

// Computes the filtered distribution by definition: sort, top-k, top-p, min-p, renormalize.
std::vector<double> Expected(const SamplingParams& params) {
  const std::vector<double> logits = Logits();
  std::vector<double> p;
  for (const double logit : logits) p.push_back(std::exp(logit / params.temperature));
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
  if (params.top_k > 0) order.resize(std::min<size_t>(order.size(), params.top_k));
  const auto mass = [&] {
    return std::accumulate(order.begin(), order.end(), 0.0,
                           [&](double sum, int64_t token) { return sum + p[token]; });
  };
  if (params.top_p < 1) {
    const double wanted = params.top_p * mass();
    double before = 0;
    size_t count = 0;
    while (count < order.size() && before < wanted) before += p[order[count++]];
    order.resize(count);
  }
  const double most = p[order[0]];
  std::erase_if(order, [&](int64_t token) { return p[token] < params.min_p * most; });
  const double kept = mass();
  std::vector<double> expected(logits.size());
  for (const int64_t token : order) expected[token] = p[token] / kept;
  return expected;
}

// Returns the p-value of the counts, 0 if a token of probability 0 was drawn. Merges cells with
// fewer than 10 expected counts into one.
double Fit(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL));
  double chi_squared = 0;
  double rest_wanted = 0;
  double rest_got = 0;
  int64_t cells = 0;
  const auto add = [&](double got, double wanted) {
    chi_squared += (got - wanted) * (got - wanted) / wanted;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double wanted = expected[i] * total;
    if (expected[i] == 0 && counts[i] > 0) return 0;
    if (wanted >= 10) {
      add(static_cast<double>(counts[i]), wanted);
    } else {
      rest_wanted += wanted;
      rest_got += static_cast<double>(counts[i]);
    }
  }
  if (rest_wanted > 0) add(rest_got, rest_wanted);
  return cells < 2 ? 1.0 : PValue(chi_squared, static_cast<double>(cells - 1));
}

// Draws the tokens of samples 0 … count - 1 of one request at one position, as a rank of `tp`.
std::vector<int32_t> TakeSamples(const SamplingParams& params, int64_t count, int64_t position,
                                 const RankGroup& tp = {}) {
  constexpr int64_t kBatch = 5000;
  const at::Tensor row = at::tensor(Logits(), at::kDouble).to(at::kFloat).unsqueeze(0);
  const VocabularyShard vocabulary = TestVocabulary(kVocab, tp);
  const at::Tensor logits = ColumnsOf(row.expand({kBatch, -1}), vocabulary);
  std::vector<int32_t> tokens;
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    std::vector<SampleInput> inputs;
    for (int64_t i = begin; i < std::min(begin + kBatch, count); ++i) {
      inputs.push_back({.params = &params, .sample_index = i, .position = position});
    }
    const TokenSamples sampled =
        SampleTokens(logits.narrow(0, 0, static_cast<int64_t>(inputs.size())), inputs, vocabulary);
    tokens.insert(tokens.end(), sampled.tokens.begin(), sampled.tokens.end());
  }
  return tokens;
}

std::vector<int64_t> Count(const std::vector<int32_t>& tokens) {
  std::vector<int64_t> counts(kVocab);
  for (const int32_t token : tokens) ++counts[token];
  return counts;
}

// Returns the p-value of the hypothesis that a[i] and b[i] are independent draws from `p`.
double PairFit(const std::vector<int32_t>& a, const std::vector<int32_t>& b,
               const std::vector<double>& p) {
  std::vector<int64_t> counts(kVocab * kVocab);
  std::vector<double> expected(kVocab * kVocab);
  for (size_t i = 0; i < a.size(); ++i) ++counts[a[i] * kVocab + b[i]];
  for (int64_t i = 0; i < kVocab * kVocab; ++i) expected[i] = p[i / kVocab] * p[i % kVocab];
  return Fit(counts, expected);
}

TEST_CASE("Sampler: 100,000 samples fit the filtered distribution, whatever the filters",
          "[sampling]") {
  const double temperature = GENERATE(0.5, 1.0, 1.7);
  const int64_t top_k = GENERATE(-1, 5, 30);
  const double top_p = GENERATE(1.0, 0.9, 0.5);
  const double min_p = GENERATE(0.0, 0.1);
  const SamplingParams params = {
      .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = 20};
  const std::vector<double> expected = Expected(params);
  INFO("temperature " << temperature << " top_k " << top_k << " top_p " << top_p << " min_p "
                      << min_p);
  const std::vector<int64_t> counts = Count(TakeSamples(params, 100'000, 12));
  CHECK(Fit(counts, expected) > kLeastP);
}

TEST_CASE("Sampler: samples fit the distribution where several ranks have its parts",
          "[sampling]") {
  const int world = GENERATE(2, 4);
  const double temperature = GENERATE(0.5, 1.0, 1.7);
  const double min_p = GENERATE(0.0, 0.1);
  const SamplingParams params = {.temperature = temperature, .min_p = min_p, .seed = 20};
  const auto tokens = AsRanks(TestBackend::kLocal, world, [&](Collectives& ranks) {
    return TakeSamples(params, 100'000, 12, RankGroup(ranks));
  });
  INFO("world " << world << " temperature " << temperature << " min_p " << min_p);
  CHECK(Fit(Count(tokens[0]), Expected(params)) > kLeastP);
  for (const std::vector<int32_t>& others : tokens) CHECK(others == tokens[0]);
}

TEST_CASE("Sampler: the fit distinguishes another temperature from the right one", "[sampling]") {
  const std::vector<int64_t> counts =
      Count(TakeSamples({.temperature = 1.0, .seed = 20}, 100'000, 12));
  CHECK(Fit(counts, Expected({.temperature = 1.03})) < kLeastP);
  CHECK(Fit(counts, Expected({.min_p = 0.01})) == 0);
}

TEST_CASE("Sampler: samples, positions and seeds are independent of each other", "[sampling]") {
  const SamplingParams params = {.temperature = 1.7, .seed = 5};
  const SamplingParams next_seed = {.temperature = 1.7, .seed = 6};
  constexpr int64_t kCount = 200'000;
  const std::vector<double> p = Expected(params);
  const std::vector<int32_t> tokens = TakeSamples(params, kCount + 1, 12);
  const std::vector<int32_t> first(tokens.begin(), tokens.end() - 1);
  CHECK(PairFit(first, {tokens.begin() + 1, tokens.end()}, p) > kLeastP);
  CHECK(PairFit(first, TakeSamples(params, kCount, 13), p) > kLeastP);
  CHECK(PairFit(first, TakeSamples(next_seed, kCount, 12), p) > kLeastP);
  CHECK(PairFit(first, first, p) < kLeastP);
}

TEST_CASE(
    "Multinomial samples fit the distribution and depend neither on each other nor on the samples",
    "[sampling]") {
  const SamplingParams params = {.temperature = 1.7, .seed = 5};
  const std::vector<double> p = Expected(params);
  const std::vector<double> logits = Logits();
  const std::vector<float> row(logits.begin(), logits.end());
  std::vector<float> weights(row.size());
  DistributionOf(row, params.temperature, weights);
  constexpr int64_t kCount = 200'000;
  std::vector<int32_t> tokens(kCount);
  SampleMultinomial(weights, params.seed, 12, tokens);
  CHECK(Fit(Count(tokens), p) > kLeastP);
  const std::vector<int32_t> first(tokens.begin(), tokens.end() - 1);
  CHECK(PairFit(first, {tokens.begin() + 1, tokens.end()}, p) > kLeastP);
  CHECK(PairFit(tokens, TakeSamples(params, kCount, 12), p) > kLeastP);
  std::vector<int32_t> other(kCount);
  SampleMultinomial(weights, params.seed, 13, other);
  CHECK(PairFit(tokens, other, p) > kLeastP);
}

TEST_CASE("Multinomial samples: more begin with the fewer, and weight 0 is never sampled",
          "[sampling]") {
  std::vector<float> weights(3000);
  for (size_t i = 700; i < weights.size(); i += 331) weights[i] = 0.25f;
  weights[2999] = 1.0f;
  std::vector<int32_t> few(5);
  std::vector<int32_t> many(4000);
  SampleMultinomial(weights, 3, 1, few);
  SampleMultinomial(weights, 3, 1, many);
  CHECK(std::equal(few.begin(), few.end(), many.begin()));
  std::map<int32_t, int64_t> counts;
  for (const int32_t token : many) ++counts[token];
  for (const auto& [token, count] : counts) CHECK(weights[token] > 0);
  CHECK(counts.size() == 8);
}

}  // namespace
}  // namespace lathe::worker
