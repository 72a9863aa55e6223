// The threads that compute.
#pragma once

#include "libs/common/concurrency/thread_team.h"

namespace lathe::worker {

// The calling thread's own, of at::get_num_threads() threads; lives until the thread ends or that
// number has changed.
ThreadTeam& ComputeTeam();

}  // namespace lathe::worker
