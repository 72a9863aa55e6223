#include "services/worker/metrics.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "libs/common/metrics/family_list.h"

namespace lathe::worker {
namespace {

using Labels = FamilyList::Labels;

void AddCounters(const ExecutorCounters& counters, FamilyList& list) {
  for (const CounterRow& row : kCounters) {
    const double value = ShownValue(counters, row);
    if (row.kind == CounterKind::kMaximum) {
      list.AddGauge(row.metric, row.help, value);
    } else {
      list.AddCounter(row.metric, row.help, value);
    }
  }
}

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
  WorkerRegistry(const ExecutorPort& executor, std::unique_ptr<HostWatch> host_watch)
      : executor_(executor), host_watch_(std::move(host_watch)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const ExecutorState state = executor_.State();
    FamilyList list;
    AddCounters(state.counters, list);
    const auto gauge = [&list](const char* name, const char* help, int64_t value) {
      list.AddGauge(name, help, static_cast<double>(value));
    };
    gauge("lathe_worker_kv_blocks", "blocks of 16 tokens in the kv cache",
          state.kv_usage.num_blocks);
    gauge("lathe_worker_kv_blocks_used", "blocks that sequences use", state.kv_usage.num_used);
    gauge("lathe_worker_kv_blocks_cached", "blocks that only the prefix cache keeps",
          state.kv_usage.num_idle);
    gauge("lathe_worker_arena_bytes", "memory that a training pass may take", state.arena_bytes);
    AddMemory(state.memory, list);
    gauge("lathe_worker_adapters_loaded", "trainable adapters in memory",
          static_cast<int64_t>(state.models.size()));
    gauge("lathe_worker_sampler_versions", "sampler versions in memory or on disk",
          static_cast<int64_t>(state.versions.size()));
    gauge("lathe_worker_sampler_versions_loaded", "sampler versions in memory",
          state.version_usage.num_in_memory);
    gauge("lathe_worker_sampler_versions_bytes", "memory of sampler versions",
          state.version_usage.bytes_in_memory);
    AddTraffic(state.traffic, list);
    host_watch_->AddTo("lathe_worker", list);
    list.AddProcess();
    return list.Take();
  }

 private:
  const ExecutorPort& executor_;
  const std::unique_ptr<HostWatch> host_watch_;
};

}  // namespace

std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor,
                                                        std::unique_ptr<HostWatch> host_watch) {
  return std::make_shared<WorkerRegistry>(executor, std::move(host_watch));
}

}  // namespace lathe::worker
