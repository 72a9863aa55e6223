#include "services/worker/training/first_fit_tree.h"

#include <catch2/catch.hpp>

#include <random>

namespace lathe::worker {
namespace {

int64_t FindByScan(const FirstFitTree& tree, int64_t begin, const PassRoom& need) {
  for (int64_t i = begin; i < tree.size(); ++i) {
    if (tree.room(i).Holds(need)) return i;
  }
  return FirstFitTree::kNone;
}

}  // namespace

TEST_CASE("FirstFitTree: finds the same place as a scan", "[training]") {
  const uint32_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % limit); };
  FirstFitTree tree;
  for (int round = 0; round < 300; ++round) {
    const PassRoom need{.tokens = below(60), .bytes = below(60)};
    const int64_t begin = below(tree.size() + 2);
    const int64_t found = tree.FindFirst(begin, need);
    REQUIRE(found == FindByScan(tree, begin, need));
    if (found == FirstFitTree::kNone) {
      tree.Append({.tokens = 50 + below(20), .bytes = 50 + below(20)});
    } else {
      tree.Take(found, need);
    }
  }
  CHECK(tree.size() > 8);
}

TEST_CASE("FirstFitTree: a row larger than its micro-batch leaves no room there", "[training]") {
  FirstFitTree tree;
  tree.Append({.tokens = 10, .bytes = 10});
  tree.Take(0, {.tokens = 25, .bytes = 3});
  CHECK(tree.room(0).tokens == -15);
  CHECK(tree.FindFirst(0, {.tokens = 0, .bytes = 0}) == FirstFitTree::kNone);
}

}  // namespace lathe::worker
