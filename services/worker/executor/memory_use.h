// What a rank's memory is used for, as people are told. Free of torch but for its device.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "services/worker/executor/executor_port.h"
#include "services/worker/executor/memory_plan.h"

namespace lathe::worker {

// Bytes.
struct MemoryInUse {
  int64_t adapters = 0;  // parameters, moments and gradients
  int64_t versions = 0;  // of samplers
  int64_t staging = 0;   // of snapshots, where it is memory of the device
  int64_t kv_cache = 0;
};

// Of this process on its device, whoever uses it. Bytes.
struct ProcessMemory {
  int64_t all = 0;
  int64_t kept = 0;  // of tensors that are gone, for those of the passes to come
};

// Zeros where it cannot be measured. Any thread.
ProcessMemory MeasureProcess(c10::Device device);

// What nobody names of the process' memory is `other`.
MemoryUse DescribeMemory(const MemoryPlan& plan, const MemoryInUse& in_use,
                         const ProcessMemory& process);

}  // namespace lathe::worker
