#include "services/worker/executor/startup/memory_use.h"

#include <algorithm>

#include <c10/core/CachingDeviceAllocator.h>

#include "libs/common/memory/process_memory.h"
#include "services/worker/memory/tensor_memory.h"

namespace lathe::worker {

ProcessMemory MeasureProcess(c10::Device device) {
  if (device.is_cpu()) {
    return {.all = ResidentMemoryBytes(), .kept = static_cast<int64_t>(UnusedTensorMemoryBytes())};
  }
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const int64_t reserved = stats.reserved_bytes[kAll].current;
  return {.all = reserved, .kept = reserved - stats.allocated_bytes[kAll].current};
}

MemoryUse DescribeMemory(const MemoryPlan& plan, const MemoryInUse& in_use,
                         const ProcessMemory& process) {
  MemoryUse use;
  use.limit = plan.weight_bytes + plan.adapter_bytes + plan.save_bytes + plan.kv_cache_bytes +
              plan.sampling_bytes + plan.arena_bytes + plan.process_bytes;
  use.shares = {{"base", plan.weight_bytes, plan.weight_bytes},
                {"adapters", in_use.adapters, plan.adapter_bytes},
                {"versions", in_use.versions, plan.adapter_bytes},
                {"staging", in_use.staging, plan.adapter_bytes},
                {"saves", in_use.saves, plan.save_bytes},
                {"kv_cache", in_use.kv_cache, plan.kv_cache_bytes},
                {"activations", process.kept, plan.arena_bytes + plan.sampling_bytes}};
  for (const MemoryShare& share : use.shares) use.used += share.used;
  // Memory that is counted but not yet written to is not resident, so the difference may be
  // negative.
  const int64_t other = std::max<int64_t>(0, process.all - use.used);
  use.shares.push_back({"other", other, plan.process_bytes});
  use.used += other;
  return use;
}

}  // namespace lathe::worker
