// The worker's metrics page.
#pragma once

#include <prometheus/registry.h>

#include <memory>

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// The registry reads `executor`, which must outlive it, at every scrape.
std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor);

}  // namespace lathe::worker
