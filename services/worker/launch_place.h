// Which rank, or which of the pods that have several each, a launcher has made this process, as it
// says in the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"

namespace lathe::worker {

struct LaunchPlace {
  int64_t rank = 0;
  int64_t world = 1;
  // Among those of this machine, all of which see its devices.
  int64_t local_rank = 0;
  bool has_local_rank = false;  // without, it has what it sees for itself
};

// torchrun: RANK, WORLD_SIZE, LOCAL_RANK. LeaderWorkerSet: LWS_WORKER_INDEX (the leader has 0) and
// LWS_GROUP_SIZE, of pods. Indexed jobs, those of a JobSet too: JOB_COMPLETION_INDEX of the pod;
// how many there are, nothing says, and `world` is 0. The first of them that is there counts;
// nullopt: none. InvalidArgument naming variable, value and bound. `get_env`: as getenv, nullptr
// when unset.
absl::StatusOr<std::optional<LaunchPlace>> FindLaunchPlace(
    const std::function<const char*(const char*)>& get_env);

}  // namespace lathe::worker
