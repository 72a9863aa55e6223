#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "services/worker/layers/sharded_logprobs.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
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
