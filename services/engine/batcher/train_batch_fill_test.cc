#include "services/engine/batcher/train_batch_fill.h"

#include <catch2/catch.hpp>
#include <vector>

namespace lathe::engine {
namespace {

TEST_CASE("TrainBatchFill: takes requests up to its budget", "[batcher]") {
  struct Row {
    std::vector<int64_t> tokens;
    size_t taken;
  };
  const Row row = GENERATE(values<Row>({
      {{40, 60}, 2},
      {{40, 61}, 1},
      {{100, 1}, 1},
      {{1000, 1}, 1},  // larger than the budget: alone
      {{10, 20, 30, 40}, 4},
  }));
  TrainBatchFill fill(100);
  size_t taken = 0;
  while (taken < row.tokens.size() && fill.TryAdd(row.tokens[taken])) ++taken;
  CHECK(taken == row.taken);
}

TEST_CASE("MaySendTrainBatch: an idle worker at once, a busy one only a full batch", "[batcher]") {
  struct Row {
    int64_t outstanding;
    int64_t queued_tokens;
    bool may;
  };
  const Row row = GENERATE(values<Row>({
      {0, 1, true},
      {0, 1000, true},
      {1, 99, false},
      {1, 100, true},
      {2, 100000, false},
  }));
  CHECK(MaySendTrainBatch(row.outstanding, row.queued_tokens, 100) == row.may);
}

}  // namespace
}  // namespace lathe::engine
