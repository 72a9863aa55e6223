// Shows that the emulation finds the defects it looks for, each planted in a kernel that has none.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/emulation/device_buffer.h"
#include "services/worker/kernels/emulation/planted_kernels.h"

namespace lathe::worker {
namespace {

using emulation::Contents;
using emulation::DeviceBuffer;

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 200;
constexpr double kTolerance = 1e-5;

struct Result {
  std::string error;
  std::vector<float> sums;
};

std::vector<float> TestNumbers() {
  std::vector<float> x(kRows * kWidth);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
  return x;
}

Result Run(Defect defect, uint64_t seed) {
  emulation::SetSeed(seed);
  const DeviceBuffer<float> x("x", TestNumbers(), Contents::kConstants);
  DeviceBuffer<float> sums("sums", kRows);
  Result result;
  try {
    SumRows(defect, {x.data(), kRows, kWidth, sums.data()});
  } catch (const std::runtime_error& error) {
    result.error = error.what();
  }
  result.sums = sums.numbers();
  return result;
}

bool IsSumOfRows(const std::vector<float>& sums) {
  const std::vector<float> x = TestNumbers();
  for (int64_t row = 0; row < kRows; ++row) {
    double expected = 0;
    for (int64_t i = 0; i < kWidth; ++i) expected += x[row * kWidth + i];
    if (!(std::abs(sums[row] - expected) < kTolerance)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("Emulation: a kernel without a defect computes what it should", "[kernels]") {
  const uint64_t seed = GENERATE(range(1, 20));
  CAPTURE(seed);
  const Result result = Run(Defect::kNone, seed);
  CHECK(result.error == "");
  CHECK(IsSumOfRows(result.sums));
}

TEST_CASE("Emulation: each planted defect is found in every order of threads", "[kernels]") {
  const auto [defect, message] = GENERATE(table<Defect, const char*>(
      {{Defect::kNoBarrierBeforeRead, "of shared memory"},
       {Defect::kNoBarrierBeforeWrite, "of shared memory: a race"},
       {Defect::kNoWarpBarrier, "of dynamic shared memory"},
       {Defect::kOneRowForTwoBlocks, "writes 4 bytes at byte 0 of sums: a race, a thread of block"},
       {Defect::kReadBeyondBuffer, "reads 4 bytes outside of every buffer"},
       {Defect::kReadBeyondDynamicShared, "of dynamic shared memory, which has 256"},
       {Defect::kIndexBeyondShared, "index 2 is outside of its array at planted_kernels.cu"},
       {Defect::kWriteOfConstants, "of x, which is constant"},
       {Defect::kReadOfUnwritten, "of shared memory: nobody has written it"},
       {Defect::kReadOfOtherStack, "uses the stack of thread 0"},
       {Defect::kMisalignedVector, "is not aligned at numbers.cuh"},
       {Defect::kBarrierOfSomeThreads, "threads part at a barrier"},
       {Defect::kBarrierAfterAnEnd, "thread 63 has ended"},
       {Defect::kBarriersOfTwoBranches, "threads part at a barrier"},
       {Defect::kExchangeWithEnded, "for the number of lane 5, which takes no part"},
       {Defect::kPlainReadOfCounter, "of shared memory: a race"}}));
  const uint64_t seed = GENERATE(range(1, 20));
  CAPTURE(static_cast<int>(defect), seed);
  CHECK_THAT(Run(defect, seed).error, Catch::Matchers::Contains(message));
}

TEST_CASE("Emulation: a wrong sum is no defect of accesses, but differs", "[kernels]") {
  const Result result = Run(Defect::kMissingHalf, 1);
  CHECK(result.error == "");
  CHECK_FALSE(IsSumOfRows(result.sums));
}

TEST_CASE("Emulation: numbers that nobody has written are counted", "[kernels]") {
  const DeviceBuffer<float> x("x", TestNumbers(), Contents::kConstants);
  DeviceBuffer<float> sums("sums", kRows);
  SumRows(Defect::kNone, {x.data(), kRows - 1, kWidth, sums.data()});
  CHECK(sums.num_unwritten_bytes() == sizeof(float));
}

TEST_CASE("Emulation: a grid that a GPU refuses is refused", "[kernels]") {
  CHECK_THROWS_WITH(SumRows(Defect::kNone, {nullptr, 0, kWidth, nullptr}),
                    "sum of rows: invalid configuration argument");
}

}  // namespace lathe::worker
