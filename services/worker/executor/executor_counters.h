// Adds up the counters of successive executor cores.
#pragma once

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Returns the sums. For peaks it returns the maximum.
ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b);

}  // namespace lathe::worker
