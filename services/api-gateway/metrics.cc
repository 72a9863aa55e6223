#include "services/api-gateway/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/metrics/family_list.h"

namespace lathe::gateway {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

// Bucket bounds in seconds. They reach far, because polls wait 20 s and uploads may take minutes.
Histogram::BucketBoundaries Buckets() {
  return {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 300};
}

}  // namespace

class GatewayMetrics::State : public prometheus::Registry {
 public:
  explicit State(std::function<GatewayGauges()> gauges)
      : gauges_(std::move(gauges)),
        requests_(prometheus::BuildCounter()
                      .Name("lathe_gateway_requests_total")
                      .Help("answered HTTP requests")
                      .Register(*this)),
        rejected_(prometheus::BuildCounter()
                      .Name("lathe_gateway_rejected_total")
                      .Help("requests refused before routing")
                      .Register(*this)),
        seconds_(prometheus::BuildHistogram()
                     .Name("lathe_gateway_request_seconds")
                     .Help("from the end of a request's headers to the end of the answer")
                     .Register(*this)) {}

  void SetHostWatch(std::unique_ptr<HostWatch> watch) { host_watch_ = std::move(watch); }

  void OnAnswer(const Answered& answered) {
    Series series = SeriesOf(answered);
    series.count->Increment();
    series.seconds->Observe(absl::ToDoubleSeconds(answered.took));
    if (answered.refusal.empty()) return;
    rejected_.Add({{"reason", answered.refusal}}).Increment();
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = prometheus::Registry::Collect();
    const GatewayGauges gauges = gauges_();
    FamilyList list;
    list.AddGauge("lathe_gateway_connections", "open connections",
                  static_cast<double>(gauges.num_connections));
    list.AddGauge("lathe_gateway_waiting_polls", "long polls that wait",
                  static_cast<double>(gauges.num_waiting_polls));
    list.AddGauge("lathe_gateway_viewers", "clients that receive events",
                  static_cast<double>(gauges.num_viewers));
    list.AddGauge("lathe_gateway_watched_requests", "requests that long polls wait for",
                  static_cast<double>(gauges.num_watched_requests));
    list.AddGauge("lathe_gateway_inflight_bytes", "memory reserved for the bodies of requests",
                  static_cast<double>(gauges.inflight_bytes));
    list.AddGauge("lathe_gateway_inflight_bytes_limit", "bound of that memory",
                  static_cast<double>(gauges.max_inflight_bytes));
    list.AddGauge("lathe_gateway_engine_connected", "1 while the engine can be reached, else 0",
                  gauges.is_engine_connected ? 1 : 0);
    list.AddCounter("lathe_gateway_trace_spans_total", "spans that the collector has taken",
                    static_cast<double>(gauges.spans.num_sent));
    list.AddCounter("lathe_gateway_trace_spans_dropped_total",
                    "spans that the collector did not take, or that found the queue full",
                    static_cast<double>(gauges.spans.num_dropped));
    if (host_watch_ != nullptr) host_watch_->AddTo("lathe_gateway", list);
    list.AddProcess();
    for (prometheus::MetricFamily& family : list.Take()) families.push_back(std::move(family));
    return families;
  }

 private:
  struct Series {
    Counter* count = nullptr;
    Histogram* seconds = nullptr;
  };

  // Caches the series, because a lookup by labels costs more than all other counting of a request.
  Series SeriesOf(const Answered& answered) {
    absl::MutexLock lock(&mu_);
    Series& series = series_[{answered.route, answered.status}];
    if (series.count != nullptr) return series;
    const std::string method = answered.route == nullptr ? "none" : answered.route->method;
    const std::string route = answered.route == nullptr ? "none" : answered.route->pattern;
    series.count = &requests_.Add(
        {{"method", method}, {"route", route}, {"status", std::to_string(answered.status)}});
    series.seconds = &seconds_.Add({{"method", method}, {"route", route}}, Buckets());
    return series;
  }

  const std::function<GatewayGauges()> gauges_;
  std::unique_ptr<HostWatch> host_watch_;
  prometheus::Family<Counter>& requests_;
  prometheus::Family<Counter>& rejected_;
  prometheus::Family<Histogram>& seconds_;
  absl::Mutex mu_;
  std::map<std::pair<const Route*, int>, Series> series_ ABSL_GUARDED_BY(mu_);
};

GatewayMetrics::GatewayMetrics(std::function<GatewayGauges()> gauges)
    : state_(std::make_shared<State>(std::move(gauges))) {}
GatewayMetrics::~GatewayMetrics() = default;

void GatewayMetrics::OnAnswer(const Answered& answered) { state_->OnAnswer(answered); }

void GatewayMetrics::SetHostWatch(std::unique_ptr<HostWatch> watch) {
  state_->SetHostWatch(std::move(watch));
}

std::shared_ptr<prometheus::Registry> GatewayMetrics::registry() const { return state_; }

}  // namespace lathe::gateway
