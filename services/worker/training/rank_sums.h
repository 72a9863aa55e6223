// Sums of gradients and norms over the ranks that train one adapter.
#pragma once

#include <array>
#include <string_view>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// One value per range of a flat buffer, in the order of AdapterSizes: summed, shared, sharded.
template <typename T>
using PerRange = std::array<T, 3>;

// Returns `of(begin, size)` for each range of `sizes`, and T() for an empty range.
template <typename T, typename F>
PerRange<T> OfRanges(const AdapterSizes& sizes, const F& of) {
  PerRange<T> results{};
  int64_t begin = 0;
  for (size_t range = 0; const int64_t size : {sizes.summed, sizes.shared, sizes.sharded}) {
    if (size > 0) results[range] = of(begin, size);
    begin += size;
    ++range;
  }
  return results;
}

// Replaces `adapter.gradient`, this rank's share, by the sum over all ranks, in place and in
// buckets. First sums over tp the ranges that several of its ranks hold. Then sums everything over
// `data`, including ranks without rows in the window. Holders of the same part get the same bits.
void SumGradients(Adapter& adapter, const RankGroups& ranks);

// Sums the ranks' range sums to the sum over the whole adapter. Adds in rank order, so all ranks
// get the same bits.
double SumOverRanks(const PerRange<double>& sums, const Adapter& adapter, const RankGroup& tp);

// Like SumOverRanks, and compares the new weights of ranks that hold the same parts. Throws
// RanksDisagree with `adapter_name` and the ranks if they differ. `all` is in the order of a Mesh.
double SumOverRanksAfterStep(const PerRange<double>& sums, const Adapter& adapter,
                             std::string_view adapter_name, const RankGroups& ranks);

}  // namespace lathe::worker
