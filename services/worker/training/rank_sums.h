// What the ranks that train one adapter together make of their shares of it.
#pragma once

#include <array>
#include <string_view>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// Of the ranges of a flat buffer, in the order of AdapterSizes: summed, shared, sharded.
template <typename T>
using PerRange = std::array<T, 3>;

// What `of(begin, size)` returns for each range of `sizes`; nothing, T(), for an empty one.
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

// Makes `adapter.gradient`, this rank's share, the sum of all: over tp of what several of its ranks
// hold, then over `data` of everything, of ranks that had none of the window too. In place, in
// buckets. Ranks that hold the same get the same bits.
void SumGradients(Adapter& adapter, const RankGroups& ranks);

// The sum over the whole adapter of what each rank's ranges sum up to. Ranks are added in their
// order: the same bits on all.
double SumOverRanks(const PerRange<double>& sums, const Adapter& adapter, const RankGroup& tp);

// As SumOverRanks, of sums that came with new weights. Throws RanksDisagree when ranks that should
// hold the same weights do not, naming `adapter_name` and ranks; `all` are in the order of a Mesh.
double SumOverRanksAfterStep(const PerRange<double>& sums, const Adapter& adapter,
                             std::string_view adapter_name, const RankGroups& ranks);

}  // namespace lathe::worker
