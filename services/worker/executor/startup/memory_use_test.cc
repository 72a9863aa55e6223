#include "services/worker/executor/startup/memory_use.h"

#include <catch2/catch.hpp>

#include <map>
#include <string>

namespace lathe::worker {
namespace {

constexpr MemoryPlan kPlan = {.weight_bytes = 100,
                              .adapter_bytes = 40,
                              .save_bytes = 5,
                              .host_save_bytes = 1000,
                              .kv_cache_bytes = 30,
                              .sampling_bytes = 20,
                              .arena_bytes = 50,
                              .process_bytes = 10};

std::map<std::string, int64_t> UsedOf(const MemoryUse& use) {
  std::map<std::string, int64_t> used;
  for (const MemoryShare& share : use.shares) used[share.owner] = share.used;
  return used;
}

}  // namespace

TEST_CASE("DescribeMemory: memory without an owner is other", "[memory]") {
  const MemoryInUse in_use = {
      .adapters = 8, .versions = 4, .staging = 2, .saves = 3, .kv_cache = 16};
  const MemoryUse use = DescribeMemory(kPlan, in_use, {.all = 153, .kept = 15});
  CHECK(UsedOf(use) == std::map<std::string, int64_t>{{"base", 100},
                                                      {"adapters", 8},
                                                      {"versions", 4},
                                                      {"staging", 2},
                                                      {"saves", 3},
                                                      {"kv_cache", 16},
                                                      {"activations", 15},
                                                      {"other", 5}});
  CHECK(use.used == 153);
  CHECK(use.limit == 255);
  CHECK(use.shares[4].limit == 5);
  CHECK(use.shares[6].limit == 70);
}

TEST_CASE("DescribeMemory: memory that was taken and not written to yet counts", "[memory]") {
  const MemoryUse use = DescribeMemory(kPlan, {.adapters = 30}, {.all = 110, .kept = 0});
  CHECK(UsedOf(use)["other"] == 0);
  CHECK(use.used == 130);
}

TEST_CASE("MeasureProcess: a process on a CPU has memory", "[memory]") {
  CHECK(MeasureProcess(at::Device(at::kCPU)).all > 1 << 20);
}

}  // namespace lathe::worker
