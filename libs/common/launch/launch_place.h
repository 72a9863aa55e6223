// The rank, or the pod index of a multi-pod job, that a launcher gave this process in its
// environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"

namespace lathe {

struct LaunchPlace {
  int64_t rank = 0;
  int64_t world = 1;
  // Rank among the processes of this machine, all of which see its devices.
  int64_t local_rank = 0;
  bool has_local_rank = false;  // false: this process sees only its own devices
};

// Reads the first launcher's variables that are set; nullopt if none are. Any launcher:
// LATHE_POD_INDEX and LATHE_POD_COUNT, which count pods from 0. torchrun: RANK,
// WORLD_SIZE, LOCAL_RANK. LeaderWorkerSet: LWS_WORKER_INDEX (0 is the leader) and LWS_GROUP_SIZE,
// which count pods. Indexed jobs, also those of a JobSet: JOB_COMPLETION_INDEX of the pod; no
// variable gives the number of pods, and `world` is 0. InvalidArgument names the variable, its
// value and the bound. `get_env` is like getenv: nullptr when unset.
absl::StatusOr<std::optional<LaunchPlace>> FindLaunchPlace(
    const std::function<const char*(const char*)>& get_env);

}  // namespace lathe
