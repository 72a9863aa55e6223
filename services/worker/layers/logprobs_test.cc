#include <catch2/catch.hpp>

#include <cmath>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/layers/logprobs.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

constexpr int64_t kOddVocab = 5003;  // not a multiple of a vector's width

// Returns targets with 0, 1, 2 or 3 tokens per row, some of them repeated.
RowTargets MakeTargets(int64_t num_rows) {
  RowTargets targets;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t k = 0; k < row % 4; ++k) targets.tokens.push_back((row * 997 + k / 2) % kOddVocab);
    targets.offsets.push_back(static_cast<int64_t>(targets.tokens.size()));
  }
  return targets;
}

at::Tensor FlatIndex(const RowTargets& targets) {
  std::vector<int64_t> index;
  for (size_t row = 0; row + 1 < targets.offsets.size(); ++row) {
    for (int64_t i = targets.offsets[row]; i < targets.offsets[row + 1]; ++i) {
      index.push_back(static_cast<int64_t>(row) * kOddVocab + targets.tokens[i]);
    }
  }
  return at::tensor(index, at::kLong);
}

std::vector<float> MakeSlopes(size_t size) {
  std::vector<float> slopes;
  for (size_t i = 0; i < size; ++i) slopes.push_back(std::sin(static_cast<float>(i)) * 3);
  return slopes;
}

}  // namespace

TEST_CASE("TargetLogprobs and their backward equal autograd in fp64", "[layers]") {
  const bool by_torch = GENERATE(false, true);
  at::manual_seed(1);
  at::Tensor logits = at::randn({9, kOddVocab}) * 6;
  const RowTargets targets = MakeTargets(9);
  const std::vector<float> slopes = MakeSlopes(targets.tokens.size());

  const at::Tensor leaf = logits.to(at::kDouble).requires_grad_(true);
  const at::Tensor expected = at::log_softmax(leaf, 1).view(-1).index_select(0, FlatIndex(targets));
  (expected * at::tensor(slopes, at::kDouble)).sum().backward();

  const SoftmaxStats stats = by_torch ? SoftmaxStatsByTorch(logits) : SoftmaxStatsOf(logits);
  const std::vector<float> logprobs = by_torch ? TargetLogprobsByTorch(logits, stats, targets)
                                               : TargetLogprobs(logits, stats, targets);
  CHECK(MaxDiff(at::tensor(logprobs, at::kDouble), expected) < 3e-6);
  if (by_torch) {
    LogprobsBackwardByTorch(logits, stats, targets, slopes);
  } else {
    LogprobsBackward(logits, stats, targets, slopes);
  }
  CHECK(MaxDiff(logits, leaf.grad()) < 1e-6);
}

TEST_CASE("SoftmaxStatsOf and LogprobsBackward: a row's bits are its own", "[layers]") {
  at::manual_seed(2);
  const at::Tensor logits = at::randn({40, kOddVocab}) * 6;
  const RowTargets targets = MakeTargets(40);
  const std::vector<float> slopes = MakeSlopes(targets.tokens.size());
  const int num_threads = at::get_num_threads();
  at::set_num_threads(3);
  const SoftmaxStats stats = SoftmaxStatsOf(logits);
  at::Tensor gradient = logits.clone();
  LogprobsBackward(gradient, stats, targets, slopes);
  at::set_num_threads(1);
  for (const int64_t row : {0, 7, 22, 39}) {
    at::Tensor alone = logits.narrow(0, row, 1).clone();
    const int64_t begin = targets.offsets[row];
    const int64_t end = targets.offsets[row + 1];
    const RowTargets own = {
        .offsets = {0, end - begin},
        .tokens = {targets.tokens.begin() + begin, targets.tokens.begin() + end}};
    const SoftmaxStats own_stats = SoftmaxStatsOf(alone);
    CHECK(at::equal(own_stats.max, stats.max.narrow(0, row, 1)));
    CHECK(at::equal(own_stats.sum, stats.sum.narrow(0, row, 1)));
    LogprobsBackward(alone, own_stats, own, {slopes.begin() + begin, slopes.begin() + end});
    CHECK(at::equal(alone, gradient.narrow(0, row, 1)));
  }
  at::set_num_threads(num_threads);
}

TEST_CASE("SoftmaxStatsOf: the sum is that of sampling at temperature 1, to the last bit",
          "[layers]") {
  at::manual_seed(3);
  const int64_t width = GENERATE(1, 31, 96, 1024, 5003);
  const at::Tensor logits = at::randn({1, width}) * 8;
  const SoftmaxStats stats = SoftmaxStatsOf(logits);
  const std::span<const float> row(logits.const_data_ptr<float>(), static_cast<size_t>(width));
  std::vector<float> weights(static_cast<size_t>(width));
  const float max = MaxOf(row);
  CHECK(max == stats.max.item<float>());
  CHECK(Weigh(row, max, /*inverse_temperature=*/1.0f, weights.data()) == stats.sum.item<double>());
}

TEST_CASE("TargetLogprobs: a logit that is not a number shows", "[layers]") {
  at::Tensor logits = at::randn({2, 100});
  logits[1][37] = GENERATE(std::nan(""), INFINITY);
  const std::vector<float> logprobs =
      TargetLogprobs(logits, SoftmaxStatsOf(logits), {.offsets = {0, 1, 2}, .tokens = {3, 3}});
  CHECK(std::isfinite(logprobs[0]));
  CHECK(std::isnan(logprobs[1]));
}

}  // namespace lathe::worker
