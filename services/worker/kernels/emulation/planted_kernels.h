// A kernel that sums rows as Lathe's kernels do, and variants with one defect each.
#pragma once

#include <cstdint>

namespace lathe::worker {

enum class Defect {
  kNone,
  kNoBarrierBeforeRead,   // of the sums of other warps
  kNoBarrierBeforeWrite,  // of sums that may still be read
  kNoWarpBarrier,         // between lanes that pass numbers through memory
  kOneRowForTwoBlocks,
  kReadBeyondBuffer,
  kReadBeyondDynamicShared,
  kIndexBeyondShared,
  kWriteOfConstants,
  kReadOfUnwritten,  // shared memory
  kReadOfOtherStack,
  kMisalignedVector,
  kBarrierOfSomeThreads,
  kBarrierAfterAnEnd,
  kBarriersOfTwoBranches,
  kExchangeWithEnded,
  kPlainReadOfCounter,  // that others change atomically
  kMissingHalf          // of each warp's sum: no access is wrong
};

struct SumRowsTask {
  const float* x;  // [num_rows, width], at least 8 numbers
  int64_t num_rows;
  int64_t width;
  float* sums;  // [num_rows]
};

// Launches the variant. Throws if the launch failed.
void SumRows(Defect defect, const SumRowsTask& task);

}  // namespace lathe::worker
