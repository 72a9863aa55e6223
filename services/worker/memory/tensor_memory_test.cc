#include "services/worker/memory/tensor_memory.h"
#include "services/worker/torch/aten.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <fstream>

#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

at::Tensor Bytes(int64_t size) { return at::empty({size}, at::kByte); }

// Memory of the process.
struct Memory {
  int64_t mapped_bytes = 0;
  int64_t resident_bytes = 0;
};

Memory Now() {
  int64_t mapped = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> mapped >> resident;
  return {mapped * 4096, resident * 4096};
}

}  // namespace

TEST_CASE("Tensor memory: a large tensor takes the place of one that is gone", "[memory]") {
  UseBlockCacheForTensors();
  UseBlockCacheForTensors();  // has no effect
  void* const first = Bytes(8 * kMib).mutable_data_ptr();
  CHECK(Bytes(8 * kMib).mutable_data_ptr() == first);
}

TEST_CASE("Tensor memory: a freed tensor's pages go back with FreeUnusedTensorMemory", "[memory]") {
  UseBlockCacheForTensors();
  FreeUnusedTensorMemory();
  const int64_t before = Now().resident_bytes;
  at::ones({64 * kMib}, at::kByte);
  CHECK(Now().resident_bytes - before > 60 * kMib);
  FreeUnusedTensorMemory();
  CHECK(Now().resident_bytes - before < 4 * kMib);
}

TEST_CASE("Tensor memory: a period without large tensors ends with their pages given back",
          "[memory]") {
  UseBlockCacheForTensors();
  FreeUnusedTensorMemory();
  EndTensorMemoryPeriod();
  const int64_t before = Now().resident_bytes;
  at::ones({256 * kMib}, at::kByte);
  EndTensorMemoryPeriod();
  CHECK(Now().resident_bytes - before > 250 * kMib);
  EndTensorMemoryPeriod();
  CHECK(Now().resident_bytes - before < 4 * kMib);
}

TEST_CASE("Tensor memory: a tensor beyond the limit is out of memory", "[memory]") {
  UseBlockCacheForTensors();
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limit{static_cast<rlim_t>(Now().mapped_bytes + 64 * kMib), before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  const int64_t size = GENERATE(512 * kMib, 2048 * kMib);  // in range of BlockCache, and above it
  const absl::Status status = Guarded("test", [size] {
    Bytes(size);
    return absl::OkStatus();
  });
  setrlimit(RLIMIT_AS, &before);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Bytes(size / 16).defined());
}

}  // namespace lathe::worker
