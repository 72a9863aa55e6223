#include "services/worker/layers/logprobs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_ranks.h"
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

namespace {

constexpr int64_t kVocab = 203;

struct Scored {
  at::Tensor max;
  at::Tensor sum;
  at::Tensor logprobs;
  at::Tensor gradient;  // of this rank's tokens
};

Scored Score(at::Tensor logits, const RowTargets& targets, const std::vector<float>& slopes,
             int64_t first, const RankGroup& tp) {
  const ScoredTargets scored = ScoreTargets(logits, targets, first, tp);
  LogprobsBackward(logits, scored.stats, targets, slopes, first);
  return {scored.stats.max, scored.stats.sum, at::tensor(scored.logprobs, at::kFloat), logits};
}

// Returns the columns of rank `rank`, with -inf after the last token.
at::Tensor Columns(const at::Tensor& logits, int rank, int64_t width) {
  at::Tensor own = at::full({logits.size(0), width}, -INFINITY);
  const int64_t size = std::min(width, kVocab - rank * width);
  own.narrow(1, 0, size).copy_(logits.narrow(1, rank * width, size));
  return own;
}

std::vector<Scored> ScoreOnRanks(const at::Tensor& logits, const RowTargets& targets,
                                 const std::vector<float>& slopes, int tp) {
  const int64_t width = (kVocab + 4 * tp - 1) / (4 * tp) * 4;
  return AsRanks(TestBackend::kLocal, tp, [&](Collectives& own) {
    const RankGroup group(own);
    return Score(Columns(logits, group.rank(), width), targets, slopes, group.rank() * width,
                 group);
  });
}

}  // namespace

TEST_CASE("ScoreTargets: ranks that each have some tokens score as one that has all",
          "[layers][ranks]") {
  const int tp = GENERATE(2, 4);
  at::manual_seed(1);
  const at::Tensor logits = at::randn({6, kVocab}) * 6;
  logits[4].narrow(0, 0, 100).sub_(300);  // one rank's logits are far below the others'
  // Rows with tokens of one rank only, no tokens, a repeated token, and the last token.
  const RowTargets targets = {.offsets = {0, 1, 1, 4, 6, 8, 9},
                              .tokens = {3, 0, 1, 2, 150, 150, 7, 160, kVocab - 1}};
  const std::vector<float> slopes = {1, -2, 0.5, 3, 1, 0.25, -1, 2, 4};
  const Scored alone = Score(logits.clone(), targets, slopes, 0, {});
  const std::vector<Scored> ranks = ScoreOnRanks(logits, targets, slopes, tp);
  std::vector<at::Tensor> gradients;
  for (const Scored& rank : ranks) {
    CHECK(at::equal(rank.max, alone.max));
    CHECK(at::equal(rank.sum, ranks[0].sum));
    CHECK(MaxDiff(rank.sum / alone.sum, at::ones({6})) < 1e-6);
    CHECK(at::equal(rank.logprobs, ranks[0].logprobs));
    CHECK(MaxDiff(rank.logprobs, alone.logprobs) < 1e-5);
    gradients.push_back(rank.gradient);
  }
  const at::Tensor whole = at::cat(gradients, 1);
  CHECK(MaxDiff(whole.narrow(1, 0, kVocab), alone.gradient) < 1e-6);
  CHECK(whole.narrow(1, kVocab, whole.size(1) - kVocab).count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("ScoreTargets: a row's bits are its own", "[layers][ranks]") {
  at::manual_seed(2);
  const at::Tensor logits = at::randn({9, kVocab}) * 6;
  RowTargets targets;
  for (int64_t row = 0; row < 9; ++row) {
    targets.tokens.push_back(row * 20);
    targets.offsets.push_back(row + 1);
  }
  const std::vector<float> slopes(9, 1.5f);
  const Scored all = ScoreOnRanks(logits, targets, slopes, 2)[1];
  const Scored one =
      ScoreOnRanks(logits.narrow(0, 7, 1), {.offsets = {0, 1}, .tokens = {140}}, {1.5f}, 2)[1];
  CHECK(at::equal(one.sum, all.sum.narrow(0, 7, 1)));
  CHECK(at::equal(one.logprobs, all.logprobs.narrow(0, 7, 1)));
  CHECK(at::equal(one.gradient, all.gradient.narrow(0, 7, 1)));
}

TEST_CASE("ScoreTargets: a logit of any rank that is not a number shows on all",
          "[layers][ranks]") {
  at::Tensor logits = at::randn({2, kVocab});
  logits[1][GENERATE(37, 150)] = GENERATE(std::nan(""), INFINITY);
  for (const Scored& rank :
       ScoreOnRanks(logits, {.offsets = {0, 1, 2}, .tokens = {3, 3}}, {1, 1}, 2)) {
    CHECK(std::isfinite(rank.logprobs[0].item<float>()));
    CHECK(std::isnan(rank.logprobs[1].item<float>()));
  }
}

}  // namespace lathe::worker
