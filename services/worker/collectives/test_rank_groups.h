// Ranks of a mesh as threads, for tests of what computes with RankGroups.
#pragma once

#include <memory>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/collectives/test_ranks.h"

namespace lathe::worker {

// Runs `body(groups)` as every rank of `data` x `tp`, returns what each returned, in their order.
// Where one throws RanksDisagree, the test ends.
template <typename Body>
auto AsMesh(int data, int tp, Body&& body) {
  FlightRecorder recorder;
  const CollectivesOptions options{.timeout = kTestPatience};
  using Communicators = std::vector<std::unique_ptr<Collectives>>;
  std::vector<Communicators> tps;    // by data rank
  std::vector<Communicators> datas;  // by tp rank
  for (int i = 0; i < data; ++i) tps.push_back(MakeLocalCollectives("tp", tp, options, recorder));
  for (int i = 0; i < tp; ++i) {
    datas.push_back(MakeLocalCollectives("dp.fsdp", data, options, recorder));
  }
  Communicators all = MakeLocalCollectives("dp.fsdp.tp", data * tp, options, recorder);
  return InThreads(data * tp, [&](int rank) {
    return body(RankGroups{.tp = RankGroup(*tps[rank / tp][rank % tp]),
                           .data = RankGroup(*datas[rank % tp][rank / tp]),
                           .all = RankGroup(*all[rank])});
  });
}

}  // namespace lathe::worker
