#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "services/worker/testing/test_trainer.h"

namespace lathe::worker {

TEST_CASE("Trainer: neither a large request nor the small ones that keep coming starve",
          "[training]") {
  TestTrainer t({.token_budget = 8});
  const std::vector<TrainDatum> five_passes(5, TestDatum(8, 1));
  t.trainer.Begin({{TestRequest("large", "m1", 1, five_passes)}});
  std::string order;  // L: a pass of the large request, s: of a small one
  int64_t num_small = 0;
  for (bool is_large_done = false; !is_large_done;) {
    const std::string id = "small" + std::to_string(++num_small);
    TrainRequest small = TestRequest(id, "m2", num_small, {TestDatum(8, 3)});
    small.forward_only = true;  // otherwise those of one model add up to a large one
    t.trainer.Begin({{small}});
    const int64_t passes = t.trainer.counters().train_passes;
    while (t.trainer.counters().train_passes == passes) REQUIRE(t.trainer.RunUnit());
    const std::vector<FinishedRequest> finished = t.trainer.TakeFinished();
    is_large_done = !finished.empty() && finished[0].request_id == "large";
    order += finished.empty() || is_large_done ? 'L' : 's';
    REQUIRE(num_small < 100);
  }
  // The last rest of the large request is as small as the others and arrived first.
  CHECK(order == "sssLsssLsssLsssLL");
}

}  // namespace lathe::worker
