// The worker's page of metrics.
#pragma once

#include <prometheus/registry.h>

#include <memory>

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// Reads `executor`, which must outlive it, whenever the page is asked for.
std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor);

}  // namespace lathe::worker
