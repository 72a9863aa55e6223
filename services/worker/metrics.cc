#include "services/worker/metrics.h"

#include <vector>

#include "absl/time/time.h"
#include "libs/common/metrics/family_list.h"

namespace lathe::worker {
namespace {

using Labels = FamilyList::Labels;

// The label `call` has few values, as all names of calls are in our code.
void AddTraffic(const Traffic& traffic, FamilyList& list) {
  const auto add = [&](const char* name, const char* help, const auto& value_of) {
    list.DeclareCounter(name, help);
    for (const auto& [axis, by_name] : traffic) {
      for (const auto& [call, totals] : by_name) {
        list.AddCounter(name, help, value_of(totals), Labels{{"axis", axis}, {"call", call}});
      }
    }
  };
  add("lathe_worker_collective_calls_total", "collectives with the other ranks of its group",
      [](const CollectiveTotals& totals) { return static_cast<double>(totals.num_calls); });
  add("lathe_worker_collective_received_bytes_total",
      "bytes that they received, as ring algorithms move them",
      [](const CollectiveTotals& totals) { return static_cast<double>(totals.wire_bytes); });
  add("lathe_worker_collective_wait_seconds_total",
      "time that they took, other ranks' lateness included",
      [](const CollectiveTotals& totals) { return absl::ToDoubleSeconds(totals.waited); });
}

void AddMemory(const MemoryUse& memory, FamilyList& list) {
  for (const MemoryShare& share : memory.shares) {
    list.AddGauge("lathe_worker_memory_bytes", "memory of the device by what it is used for",
                  static_cast<double>(share.used), Labels{{"owner", share.owner}});
  }
  for (const MemoryShare& share : memory.shares) {
    list.AddGauge("lathe_worker_memory_limit_bytes", "what each may take by the memory plan",
                  static_cast<double>(share.limit), Labels{{"owner", share.owner}});
  }
}

class WorkerRegistry : public prometheus::Registry {
 public:
  explicit WorkerRegistry(const ExecutorPort& executor) : executor_(executor) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const ExecutorState state = executor_.State();
    const ExecutorCounters& counters = state.counters;
    FamilyList list;
    const auto counter = [&list](const char* name, const char* help, int64_t value) {
      list.AddCounter(name, help, static_cast<double>(value));
    };
    const auto gauge = [&list](const char* name, const char* help, int64_t value) {
      list.AddGauge(name, help, static_cast<double>(value));
    };
    counter("lathe_worker_train_passes_total", "packed training passes", counters.train_passes);
    counter("lathe_worker_train_tokens_total", "tokens in training passes", counters.train_tokens);
    counter("lathe_worker_prefill_passes_total", "prefill passes", counters.prefill_passes);
    counter("lathe_worker_decode_passes_total", "decode passes, one token for every running sample",
            counters.decode_passes);
    counter("lathe_worker_generated_tokens_total", "sampled tokens", counters.generated_tokens);
    counter("lathe_worker_prefill_tokens_total",
            "tokens in prefill, of prompts and of samples that are computed again",
            counters.prefill_tokens);
    counter("lathe_worker_preemptions_total", "samples that were preempted for older ones",
            counters.preemptions);
    counter("lathe_worker_prefix_cache_queried_tokens_total",
            "prompt tokens looked up in the prefix cache", counters.looked_up_tokens);
    counter("lathe_worker_prefix_cache_hit_tokens_total", "prompt tokens found in the prefix cache",
            counters.prompt_hit_tokens);
    counter("lathe_worker_prefix_cache_evictions_total",
            "blocks taken from the prefix cache for other tokens", counters.kv_evictions);
    gauge("lathe_worker_kv_blocks", "blocks of 16 tokens in the kv cache",
          state.kv_usage.num_blocks);
    gauge("lathe_worker_kv_blocks_used", "blocks that sequences use", state.kv_usage.num_used);
    gauge("lathe_worker_kv_blocks_cached", "blocks that only the prefix cache keeps",
          state.kv_usage.num_idle);
    counter("lathe_worker_optim_steps_total", "optimizer steps", counters.optim_steps);
    list.AddCounter("lathe_worker_training_seconds_total", "time that training had the device",
                    absl::ToDoubleSeconds(counters.training_time));
    list.AddCounter("lathe_worker_sampling_seconds_total", "time that sampling had the device",
                    absl::ToDoubleSeconds(counters.sampling_time));
    counter("lathe_worker_out_of_memory_retries_total", "training passes run again in halves",
            counters.out_of_memory_retries);
    gauge("lathe_worker_arena_bytes", "memory that a training pass may take", state.arena_bytes);
    gauge("lathe_worker_arena_peak_bytes", "the most that a training pass took",
          counters.arena_peak_bytes);
    AddMemory(state.memory, list);
    gauge("lathe_worker_adapters_loaded", "trainable adapters in memory",
          static_cast<int64_t>(state.models.size()));
    gauge("lathe_worker_sampler_versions", "sampler versions in memory or on disk",
          static_cast<int64_t>(state.versions.size()));
    gauge("lathe_worker_sampler_versions_loaded", "sampler versions in memory",
          state.version_usage.num_in_memory);
    gauge("lathe_worker_sampler_versions_bytes", "memory of sampler versions",
          state.version_usage.bytes_in_memory);
    counter("lathe_worker_sampler_version_evictions_total", "sampler versions evicted from memory",
            counters.version_evictions);
    counter("lathe_worker_sampler_version_loads_total",
            "sampler versions read from disk or from other groups", counters.version_loads);
    list.AddCounter("lathe_worker_sampler_version_load_seconds_total",
                    "time that reading sampler versions took",
                    absl::ToDoubleSeconds(counters.version_load_time));
    counter("lathe_worker_snapshots_total", "snapshots of models written", counters.snapshots);
    counter("lathe_worker_snapshot_failures_total", "snapshots of models that failed",
            counters.snapshot_failures);
    list.AddCounter("lathe_worker_snapshot_seconds_total",
                    "time that threads were busy with snapshots",
                    absl::ToDoubleSeconds(counters.snapshot_time));
    AddTraffic(state.traffic, list);
    list.AddProcess();
    return list.Take();
  }

 private:
  const ExecutorPort& executor_;
};

}  // namespace

std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor) {
  return std::make_shared<WorkerRegistry>(executor);
}

}  // namespace lathe::worker
