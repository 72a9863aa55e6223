// Counters of one executor after another.
#pragma once

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Sums; of the peaks the higher one.
ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b);

}  // namespace lathe::worker
