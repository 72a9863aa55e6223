// A report of a rank's memory use, for operators. Includes torch only for its device type.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "services/worker/executor/executor_port.h"
#include "services/worker/executor/startup/memory_plan.h"

namespace lathe::worker {

// Memory of the executor's parts, in bytes.
struct MemoryInUse {
  int64_t adapters = 0;  // parameters, moments and gradients
  int64_t versions = 0;  // sampler versions
  int64_t staging = 0;   // buffers of snapshots, if they are in device memory
  int64_t saves = 0;     // saves that wait to be written, if they are in device memory
  int64_t kv_cache = 0;
};

// All memory of this process on its device, in bytes.
struct ProcessMemory {
  int64_t all = 0;
  int64_t kept = 0;  // freed tensors' memory, cached for later passes
};

// Returns zeros if it cannot be measured. Any thread.
ProcessMemory MeasureProcess(c10::Device device);

// Memory of the process that no other share explains becomes the share `other`.
MemoryUse DescribeMemory(const MemoryPlan& plan, const MemoryInUse& in_use,
                         const ProcessMemory& process);

}  // namespace lathe::worker
