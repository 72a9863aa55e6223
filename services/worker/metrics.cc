#include "services/worker/metrics.h"

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace lathe::worker {
namespace {

class WorkerRegistry : public prometheus::Registry {
 public:
  explicit WorkerRegistry(const ExecutorPort& executor) : executor_(executor) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const ExecutorState state = executor_.State();
    const ExecutorCounters& counters = state.counters;
    std::vector<prometheus::MetricFamily> families;
    const auto add = [&families](std::string name, std::string help, prometheus::MetricType type,
                                 int64_t value) {
      prometheus::ClientMetric metric;
      (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) =
          static_cast<double>(value);
      families.push_back({std::move(name), std::move(help), type, {std::move(metric)}});
    };
    constexpr auto kCounter = prometheus::MetricType::Counter;
    constexpr auto kGauge = prometheus::MetricType::Gauge;
    add("lathe_worker_train_passes_total", "packed training passes", kCounter,
        counters.train_passes);
    add("lathe_worker_train_tokens_total", "tokens in training passes", kCounter,
        counters.train_tokens);
    add("lathe_worker_prefill_passes_total", "prefill passes", kCounter, counters.prefill_passes);
    add("lathe_worker_decode_passes_total", "decode passes, one token for every running sample",
        kCounter, counters.decode_passes);
    add("lathe_worker_generated_tokens_total", "sampled tokens", kCounter,
        counters.generated_tokens);
    add("lathe_worker_optim_steps_total", "optimizer steps", kCounter, counters.optim_steps);
    add("lathe_worker_adapters_loaded", "trainable adapters in memory", kGauge,
        static_cast<int64_t>(state.models.size()));
    add("lathe_worker_sampler_versions_loaded", "sampler versions in memory", kGauge,
        static_cast<int64_t>(state.version_ids.size()));
    return families;
  }

 private:
  const ExecutorPort& executor_;
};

}  // namespace

std::shared_ptr<prometheus::Registry> MakeWorkerMetrics(const ExecutorPort& executor) {
  return std::make_shared<WorkerRegistry>(executor);
}

}  // namespace lathe::worker
