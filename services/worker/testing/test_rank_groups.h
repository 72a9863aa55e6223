// Ranks of a mesh as threads, for tests of code that computes with RankGroups.
#pragma once

#include <memory>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {

// Runs `body(groups)` as every rank of `data` x `tp`, in FSDP groups of `fsdp` data ranks. Returns
// the results in rank order. If a rank throws RanksDisagree, the test program ends.
template <typename Body>
auto AsMesh(int data, int tp, Body&& body, int fsdp = 1) {
  FlightRecorder recorder;
  const CollectivesOptions options{.timeout = kTestPatience};
  using Communicators = std::vector<std::unique_ptr<Collectives>>;
  std::vector<Communicators> tps;    // by data rank
  std::vector<Communicators> datas;  // by tp rank
  for (int i = 0; i < data; ++i) tps.push_back(MakeLocalCollectives("tp", tp, options, recorder));
  for (int i = 0; i < tp; ++i) {
    datas.push_back(MakeLocalCollectives("dp.fsdp", data, options, recorder));
  }
  std::vector<Communicators> fsdps;  // by dp and tp rank
  for (int i = 0; i < data / fsdp * tp; ++i) {
    fsdps.push_back(MakeLocalCollectives("fsdp", fsdp, options, recorder));
  }
  Communicators all = MakeLocalCollectives("dp.fsdp.tp", data * tp, options, recorder);
  return InThreads(data * tp, [&](int rank) {
    return body(
        RankGroups{.tp = RankGroup(*tps[rank / tp][rank % tp]),
                   .data = RankGroup(*datas[rank % tp][rank / tp]),
                   .fsdp = RankGroup(*fsdps[rank / tp / fsdp * tp + rank % tp][rank / tp % fsdp]),
                   .all = RankGroup(*all[rank])});
  });
}

}  // namespace lathe::worker
