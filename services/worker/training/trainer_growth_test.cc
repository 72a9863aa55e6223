// Checks that memory does not grow over many steps.
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstdint>
#include <fstream>

#include "services/worker/testing/test_trainer.h"
#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

int64_t ResidentBytes() {
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// Runs steps with lengths that rarely repeat, so that freed blocks do not simply fit again.
void RunSteps(TestTrainer& bench, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    std::vector<TrainDatum> data;
    for (int i = 0; i < 3; ++i) {
      data.push_back(TestDatum(static_cast<size_t>(1 + (37 * step + 11 * i) % 101), step % 90));
    }
    TrainRequest other = TestRequest("b", "m2", step + 1, {data[1]}, "ppo");
    other.forward_only = step % 3 == 0;
    REQUIRE(bench.Run({TestRequest("a", "m1", step + 1, std::move(data)), other}).at("a").ok());
    REQUIRE(ApplyAdamW(bench.adapter("m1"), {}).ok());
    REQUIRE(ApplyAdamW(bench.adapter("m2"), {}).ok());
  }
}

}  // namespace

TEST_CASE("Trainer: memory does not grow over 1,000 steps", "[training]") {
  TestTrainer bench({.token_budget = 128});
  RunSteps(bench, 0, 200);
  const int64_t before = ResidentBytes();
  RunSteps(bench, 200, 1200);
  // Leaking one activation in every tenth step would add 10 MiB.
  CHECK(ResidentBytes() - before < int64_t{4} << 20);
}

}  // namespace lathe::worker
