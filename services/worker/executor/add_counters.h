// Counters of two cores, one after the other.
#pragma once

#include <algorithm>

#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

inline ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b) {
  return {.train_passes = a.train_passes + b.train_passes,
          .train_tokens = a.train_tokens + b.train_tokens,
          .prefill_passes = a.prefill_passes + b.prefill_passes,
          .prefill_tokens = a.prefill_tokens + b.prefill_tokens,
          .decode_passes = a.decode_passes + b.decode_passes,
          .generated_tokens = a.generated_tokens + b.generated_tokens,
          .preemptions = a.preemptions + b.preemptions,
          .looked_up_tokens = a.looked_up_tokens + b.looked_up_tokens,
          .prompt_hit_tokens = a.prompt_hit_tokens + b.prompt_hit_tokens,
          .kv_evictions = a.kv_evictions + b.kv_evictions,
          .optim_steps = a.optim_steps + b.optim_steps,
          .out_of_memory_retries = a.out_of_memory_retries + b.out_of_memory_retries,
          .arena_peak_bytes = std::max(a.arena_peak_bytes, b.arena_peak_bytes),
          .training_time = a.training_time + b.training_time,
          .sampling_time = a.sampling_time + b.sampling_time,
          .version_loads = a.version_loads + b.version_loads,
          .version_load_time = a.version_load_time + b.version_load_time,
          .version_evictions = a.version_evictions + b.version_evictions,
          .snapshots = a.snapshots + b.snapshots,
          .snapshot_failures = a.snapshot_failures + b.snapshot_failures,
          .snapshot_time = a.snapshot_time + b.snapshot_time};
}

}  // namespace lathe::worker
