// The thread team for CPU computation.
#pragma once

#include "libs/common/concurrency/thread_team.h"

namespace lathe::worker {

// Returns the calling thread's own team of at::get_num_threads() threads. The team lives until the
// thread ends or that number changes.
ThreadTeam& ComputeTeam();

}  // namespace lathe::worker
