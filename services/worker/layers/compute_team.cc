#include "services/worker/layers/compute_team.h"

#include <memory>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

ThreadTeam& ComputeTeam() {
  // A thread-local, not a parameter of every layer: results do not depend on the threads.
  thread_local std::unique_ptr<ThreadTeam> team;
  const int64_t num_threads = at::get_num_threads();
  if (team == nullptr || team->num_threads() != num_threads) {
    team.reset();
    team = std::make_unique<ThreadTeam>(num_threads);
  }
  return *team;
}

}  // namespace lathe::worker
