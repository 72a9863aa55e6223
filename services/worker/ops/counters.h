// The worker's counters, and the table that says how each is added up and shown.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/time/time.h"

namespace lathe::worker {

// Counted by the trainer.
struct TrainCounters {
  int64_t train_passes = 0;  // completed micro-batches, forward or forward-backward
  int64_t train_tokens = 0;
  int64_t out_of_memory_retries = 0;  // passes run again in halves
  int64_t arena_peak_bytes = 0;       // the maximum that a pass reserved
};

// Counted by the sampling engine. All are int64_t, because ranks exchange them as such.
struct SamplingCounters {
  int64_t prefill_passes = 0;  // passes with rows of a prompt or of a recomputed sample
  int64_t prefill_tokens = 0;
  int64_t decode_passes = 0;  // passes with a row of every running sample
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;        // samples that gave up their keys and values to older ones
  int64_t looked_up_tokens = 0;   // prompt tokens looked up in the prefix cache
  int64_t prompt_hit_tokens = 0;  // those of them that were found
  int64_t kv_evictions = 0;       // blocks taken from the prefix cache
};

// Counted by the table of sampler versions.
struct VersionCounters {
  int64_t version_loads = 0;         // reads from disk or other groups, failed ones included
  absl::Duration version_load_time;  // sum over all loads
  int64_t version_evictions = 0;     // versions dropped from memory
};

// Counted by the executor's core.
struct CoreCounters {
  int64_t optim_steps = 0;
  absl::Duration training_time;  // device time
  absl::Duration sampling_time;  // device time
  int64_t snapshots = 0;         // snapshots of models written
  int64_t snapshot_failures = 0;
  absl::Duration snapshot_time;  // time that threads worked on them
};

// All counters since the process started. A new counter is a field above and a row of kCounters.
struct ExecutorCounters : TrainCounters, SamplingCounters, VersionCounters, CoreCounters {};

enum class CounterKind {
  // Ranks of a group compare their sums of numbers, so these must not differ between ranks.
  kSum,
  kMaximum,  // shown as a gauge
};

struct CounterRow {
  const char* metric;
  const char* help;
  // Times are shown in seconds.
  std::variant<int64_t ExecutorCounters::*, absl::Duration ExecutorCounters::*> field;
  CounterKind kind = CounterKind::kSum;
};

// One row for each counter. docs/operations.md lists the metrics.
inline constexpr CounterRow kCounters[] = {
    {"lathe_worker_train_passes_total", "packed training passes", &ExecutorCounters::train_passes},
    {"lathe_worker_train_tokens_total", "tokens in training passes",
     &ExecutorCounters::train_tokens},
    {"lathe_worker_out_of_memory_retries_total", "training passes run again in halves",
     &ExecutorCounters::out_of_memory_retries},
    {"lathe_worker_arena_peak_bytes", "largest part of the arena that a pass reserved",
     &ExecutorCounters::arena_peak_bytes, CounterKind::kMaximum},
    {"lathe_worker_prefill_passes_total", "prefill passes", &ExecutorCounters::prefill_passes},
    {"lathe_worker_prefill_tokens_total",
     "tokens in prefill, of prompts and of samples that are computed again",
     &ExecutorCounters::prefill_tokens},
    {"lathe_worker_decode_passes_total", "decode passes, one token for every running sample",
     &ExecutorCounters::decode_passes},
    {"lathe_worker_generated_tokens_total", "sampled tokens", &ExecutorCounters::generated_tokens},
    {"lathe_worker_preemptions_total", "samples that were preempted for older ones",
     &ExecutorCounters::preemptions},
    {"lathe_worker_prefix_cache_queried_tokens_total",
     "prompt tokens looked up in the prefix cache", &ExecutorCounters::looked_up_tokens},
    {"lathe_worker_prefix_cache_hit_tokens_total", "prompt tokens found in the prefix cache",
     &ExecutorCounters::prompt_hit_tokens},
    {"lathe_worker_prefix_cache_evictions_total",
     "blocks taken from the prefix cache for other tokens", &ExecutorCounters::kv_evictions},
    {"lathe_worker_sampler_version_loads_total",
     "sampler versions read from disk or from other groups", &ExecutorCounters::version_loads},
    {"lathe_worker_sampler_version_load_seconds_total", "time that reading sampler versions took",
     &ExecutorCounters::version_load_time},
    {"lathe_worker_sampler_version_evictions_total", "sampler versions evicted from memory",
     &ExecutorCounters::version_evictions},
    {"lathe_worker_optim_steps_total", "optimizer steps", &ExecutorCounters::optim_steps},
    {"lathe_worker_training_seconds_total", "time that training had the device",
     &ExecutorCounters::training_time},
    {"lathe_worker_sampling_seconds_total", "time that sampling had the device",
     &ExecutorCounters::sampling_time},
    {"lathe_worker_snapshots_total", "snapshots of models written", &ExecutorCounters::snapshots},
    {"lathe_worker_snapshot_failures_total", "snapshots of models that failed",
     &ExecutorCounters::snapshot_failures},
    {"lathe_worker_snapshot_seconds_total", "time that threads were busy with snapshots",
     &ExecutorCounters::snapshot_time},
};

// Combines the counters of successive executor cores.
ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b);

// Returns the counter of `row` as the metrics page shows it.
double ShownValue(const ExecutorCounters& counters, const CounterRow& row);

}  // namespace lathe::worker
