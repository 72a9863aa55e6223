// The worker's metrics page.
#pragma once

#include <prometheus/registry.h>

#include <memory>

#include "libs/common/metrics/host_watch.h"
#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

// The registry reads `executor`, which must outlive it, at every scrape, and owns `host_watch`.
std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor,
                                                        std::unique_ptr<HostWatch> host_watch);

}  // namespace lathe::worker
