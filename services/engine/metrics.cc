#include "services/engine/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/metrics/family_list.h"

namespace lathe::engine {
namespace {

using prometheus::Histogram;

constexpr std::pair<LossCause, const char*> kLossCauses[] = {
    {LossCause::kUnknown, "unknown"},
    {LossCause::kCrashed, "crashed"},
    {LossCause::kOutOfMemory, "out_of_memory"},
    {LossCause::kKilled, "killed"},
    {LossCause::kEnded, "ended"},
    {LossCause::kSilent, "silent"},
    {LossCause::kStuck, "stuck"},
    {LossCause::kPeerGone, "peer_gone"}};
constexpr std::pair<RecordWeightTransfer::Transport, const char*> kTransports[] = {
    {RecordWeightTransfer::Transport::kMemory, "memory"},
    {RecordWeightTransfer::Transport::kFile, "file"},
    {RecordWeightTransfer::Transport::kFailed, "failed"}};
constexpr std::pair<RecordRecovery::Outcome, const char*> kRecoveryOutcomes[] = {
    {RecordRecovery::Outcome::kRecovered, "recovered"},
    {RecordRecovery::Outcome::kResumed, "resumed"},
    {RecordRecovery::Outcome::kFellBack, "fell_back"},
    {RecordRecovery::Outcome::kLost, "lost"}};
constexpr Outcome kOutcomes[] = {Outcome::kOk, Outcome::kUserError, Outcome::kServerError,
                                 Outcome::kCancelled};

Histogram::BucketBoundaries RequestBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
          1,     2.5,    5,     10,   30,    60,   300, 1800};
}
Histogram::BucketBoundaries CommitBuckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5};
}
Histogram::BucketBoundaries CountBuckets() { return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}; }

double Seconds(int64_t from, int64_t to) {
  // Clamped at 0, because the wall clock may be set back.
  return std::max(0.0, static_cast<double>(to - from) / 1e9);
}

// The metrics of one operation. All exist from the start, so that rates begin at 0.
struct OperationSeries {
  std::map<Outcome, prometheus::Counter*> completed;
  prometheus::Counter* tokens = nullptr;
  Histogram* queue = nullptr;
  Histogram* execute = nullptr;
  Histogram* total = nullptr;
};

}  // namespace

class EngineMetrics::State : public prometheus::Registry {
 public:
  explicit State(const Tracer* tracer)
      : tracer_(tracer),
        batch_requests_(
            Series("lathe_engine_batch_requests", "requests of a training batch", CountBuckets())),
        commit_seconds_(
            Series("lathe_engine_commit_seconds", "one transaction of the store", CommitBuckets())),
        commit_writes_(
            Series("lathe_engine_commit_writes", "writes of a transaction", CountBuckets())),
        core_step_seconds_(Series("lathe_engine_core_step_seconds",
                                  "one Step of the core and its immediate actions",
                                  CommitBuckets())),
        snapshot_seconds_(Series("lathe_engine_snapshot_seconds",
                                 "time a worker was busy with a snapshot", RequestBuckets())),
        recovery_seconds_(Series("lathe_engine_recovery_seconds",
                                 "from the loss of a model's worker to its recovery",
                                 RequestBuckets())) {
    AddRecoveries();
    AddOperations();
  }

  void OnRequestCompleted(const RequestSpan& span) {
    const OperationSeries& series = operations_.at(span.kind);
    series.completed.at(span.outcome)->Increment();
    series.tokens->Increment(static_cast<double>(span.tokens));
    series.total->Observe(Seconds(span.accepted_at, span.completed_at));
    if (span.dispatched_at == 0) return;
    series.queue->Observe(Seconds(span.durable_at, span.dispatched_at));
    if (span.executed_at == 0) return;
    series.execute->Observe(Seconds(span.dispatched_at, span.executed_at));
  }
  void OnTrainBatch(int64_t num_requests) {
    batch_requests_.Observe(static_cast<double>(num_requests));
  }
  void OnCommit(absl::Duration took, size_t num_writes) {
    commit_seconds_.Observe(absl::ToDoubleSeconds(took));
    commit_writes_.Observe(static_cast<double>(num_writes));
  }
  void OnCoreStep(absl::Duration took) { core_step_seconds_.Observe(absl::ToDoubleSeconds(took)); }

  void OnSnapshot(const WorkerSnapshotDone& event) {
    (event.error ? snapshots_failed_ : snapshots_written_)->Increment();
    snapshot_seconds_.Observe(Seconds(0, event.write_time));
    snapshot_bytes_->Increment(static_cast<double>(event.size_bytes));
  }
  void OnRecovery(const RecordRecovery& action) {
    recoveries_.at(action.outcome)->Increment();
    if (action.outcome == RecordRecovery::Outcome::kRecovered) {
      recovery_seconds_.Observe(Seconds(0, action.nanoseconds));
    }
    replayed_->Increment(static_cast<double>(action.num_replayed));
  }

  void OnWeightTransfer(const RecordWeightTransfer& action) {
    transfers_.at(action.transport)->Increment();
  }
  void OnWorkerLost(const RecordWorkerLost& action) { restarts_.at(action.cause)->Increment(); }

  void OnOldestTransaction(absl::Duration age) {
    absl::MutexLock lock(&mu_);
    oldest_transaction_ = age;
  }

  void Show(Runtime* runtime, WorkerSender* workers) {
    absl::MutexLock lock(&mu_);
    runtime_ = runtime;
    workers_ = workers;
  }

  void SetLeadershipCheck(std::function<bool()> leads) {
    absl::MutexLock lock(&mu_);
    leads_ = std::move(leads);
  }

  void SetHostWatch(std::unique_ptr<HostWatch> watch) {
    absl::MutexLock lock(&mu_);
    host_watch_ = std::move(watch);
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = prometheus::Registry::Collect();
    FamilyList list;
    {
      absl::MutexLock lock(&mu_);
      const bool leads = runtime_ != nullptr && (!leads_ || leads_());
      list.AddGauge("lathe_engine_leader", "1 while this engine leads, 0 on a standby", leads);
      if (runtime_ != nullptr) AddStateLocked(list);
      list.AddGauge("lathe_engine_oldest_transaction_seconds",
                    "age of the database's oldest open transaction, of any program",
                    absl::ToDoubleSeconds(oldest_transaction_));
      if (host_watch_ != nullptr) host_watch_->AddTo("lathe_engine", list);
      const SpanExporter::Counts spans =
          tracer_ == nullptr ? SpanExporter::Counts() : tracer_->counts();
      list.AddCounter("lathe_engine_trace_spans_total", "spans that the collector has taken",
                      static_cast<double>(spans.num_sent));
      list.AddCounter("lathe_engine_trace_spans_dropped_total",
                      "spans that the collector did not take, or that found the queue full",
                      static_cast<double>(spans.num_dropped));
    }
    list.AddProcess();
    for (prometheus::MetricFamily& family : list.Take()) families.push_back(std::move(family));
    return families;
  }

 private:
  void AddRecoveries() {
    auto& snapshots = prometheus::BuildCounter()
                          .Name("lathe_engine_snapshots_total")
                          .Help("snapshots of models that a worker wrote")
                          .Register(*this);
    snapshots_written_ = &snapshots.Add({{"outcome", "ok"}});
    snapshots_failed_ = &snapshots.Add({{"outcome", "server_error"}});
    snapshot_bytes_ = &prometheus::BuildCounter()
                           .Name("lathe_engine_snapshot_bytes_total")
                           .Help("bytes of written snapshots")
                           .Register(*this)
                           .Add({});
    auto& recoveries = prometheus::BuildCounter()
                           .Name("lathe_engine_recoveries_total")
                           .Help("recoveries and resumes of models, by outcome")
                           .Register(*this);
    for (const auto& [outcome, name] : kRecoveryOutcomes)
      recoveries_[outcome] = &recoveries.Add({{"outcome", name}});
    auto& transfers = prometheus::BuildCounter()
                          .Name("lathe_engine_weight_transfers_total")
                          .Help("transfers of unnamed sampler versions to groups that sample")
                          .Register(*this);
    for (const auto& [transport, name] : kTransports)
      transfers_[transport] = &transfers.Add({{"transport", name}});
    auto& restarts = prometheus::BuildCounter()
                         .Name("lathe_engine_worker_restarts_total")
                         .Help("worker processes that ended, by reason")
                         .Register(*this);
    for (const auto& [cause, reason] : kLossCauses) {
      restarts_[cause] = &restarts.Add({{"reason", reason}});
    }
    replayed_ = &prometheus::BuildCounter()
                     .Name("lathe_engine_replayed_operations_total")
                     .Help("operations that ran again to rebuild models")
                     .Register(*this)
                     .Add({});
  }

  void AddOperations() {
    auto& completed = prometheus::BuildCounter()
                          .Name("lathe_engine_requests_total")
                          .Help("requests whose result is on disk")
                          .Register(*this);
    auto& tokens = prometheus::BuildCounter()
                       .Name("lathe_engine_request_tokens_total")
                       .Help("tokens of completed requests")
                       .Register(*this);
    auto& queue = Family("lathe_engine_request_queue_seconds",
                         "from a request's acceptance on disk to its worker");
    auto& execute =
        Family("lathe_engine_request_execute_seconds", "from its worker to the result's arrival");
    auto& total =
        Family("lathe_engine_request_seconds", "from a request's acceptance to its result on disk");
    for (const OperationTraits& traits : kOperations) {
      const prometheus::Labels labels = {{"operation", std::string(traits.name)}};
      OperationSeries& series = operations_[traits.kind];
      for (const Outcome outcome : kOutcomes) {
        prometheus::Labels both = labels;
        both["outcome"] = std::string(NameOf(outcome));
        series.completed[outcome] = &completed.Add(both);
      }
      series.tokens = &tokens.Add(labels);
      series.queue = &queue.Add(labels, RequestBuckets());
      series.execute = &execute.Add(labels, RequestBuckets());
      series.total = &total.Add(labels, RequestBuckets());
    }
  }

  Histogram& Series(const std::string& name, const std::string& help,
                    const Histogram::BucketBoundaries& buckets) {
    return Family(name, help).Add({}, buckets);
  }
  prometheus::Family<Histogram>& Family(const std::string& name, const std::string& help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*this);
  }

  void AddStateLocked(FamilyList& list) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::map<OperationKind, SessionTraces::Load> loads = runtime_->traces().Loads();
    for (const OperationTraits& traits : kOperations) {
      list.AddGauge("lathe_engine_requests_waiting", "accepted requests that are not at a worker",
                    static_cast<double>(loads[traits.kind].num_waiting),
                    {{"operation", std::string(traits.name)}});
    }
    for (const OperationTraits& traits : kOperations) {
      list.AddGauge("lathe_engine_requests_running", "requests at a worker",
                    static_cast<double>(loads[traits.kind].num_running),
                    {{"operation", std::string(traits.name)}});
    }
    const Directory::Sizes sizes = runtime_->directory().CountLive();
    const auto gauge = [&list](const char* name, const char* help, int64_t value) {
      list.AddGauge(name, help, static_cast<double>(value));
    };
    gauge("lathe_engine_sessions", "sessions that have not ended", sizes.num_sessions);
    gauge("lathe_engine_models", "models that are being created or can be trained",
          sizes.num_models - sizes.num_offloaded_models);
    gauge("lathe_engine_offloaded_models", "models that are on disk until a request needs them",
          sizes.num_offloaded_models);
    gauge("lathe_engine_samplers", "sampling sessions", sizes.num_samplers);
    gauge("lathe_engine_watch_streams", "open notification streams to gateways",
          runtime_->num_watch_streams());
    gauge("lathe_engine_events_waiting", "events in the queue of the core",
          static_cast<int64_t>(runtime_->num_waiting_events()));
    const SeriesBook::Counts points = runtime_->series_book().counts();
    gauge("lathe_engine_metric_points_pending",
          "points of runs' metrics that are durable and not yet in their series",
          points.num_pending);
    list.AddCounter("lathe_engine_metric_points_total", "points of runs' metrics",
                    static_cast<double>(points.num_kept), {{"outcome", "kept"}});
    list.AddCounter("lathe_engine_metric_points_total", "points of runs' metrics",
                    static_cast<double>(points.num_dropped), {{"outcome", "dropped"}});
    list.AddCounter("lathe_engine_metric_damaged_total",
                    "batches and folds of runs' metrics that met damaged bytes",
                    static_cast<double>(points.num_damaged));
    gauge("lathe_engine_term", "number of the current leadership", runtime_->term());
    list.AddGauge("lathe_engine_replay_divergence",
                  "largest difference between a replayed result and the first one",
                  runtime_->replay_divergence().sums().largest);
    AddWorkers(workers_->Statuses(), list);
  }

  static void AddWorkers(const std::map<std::string, WorkerStatus>& workers, FamilyList& list) {
    const auto num_ready = std::count_if(workers.begin(), workers.end(),
                                         [](const auto& one) { return one.second.ready; });
    const char* const help = "attached workers";
    list.AddGauge("lathe_engine_workers", help, static_cast<double>(num_ready),
                  {{"state", "ready"}});
    list.AddGauge("lathe_engine_workers", help,
                  static_cast<double>(workers.size()) - static_cast<double>(num_ready),
                  {{"state", "loading"}});
    double heartbeat_age = 0;
    double progress_age = 0;
    for (const auto& [group, one] : workers) {
      heartbeat_age = std::max(heartbeat_age, one.heartbeat_age_seconds);
      progress_age = std::max(progress_age, one.progress_age_seconds);
    }
    list.AddGauge("lathe_engine_worker_heartbeat_age_seconds",
                  "longest time since the last heartbeat of an attached worker", heartbeat_age);
    list.AddGauge("lathe_engine_worker_progress_age_seconds",
                  "longest time that the work of an attached worker has not advanced",
                  progress_age);
  }

  const Tracer* const tracer_;
  Histogram& batch_requests_;
  Histogram& commit_seconds_;
  Histogram& commit_writes_;
  Histogram& core_step_seconds_;
  Histogram& snapshot_seconds_;
  Histogram& recovery_seconds_;
  prometheus::Counter* snapshots_written_ = nullptr;
  prometheus::Counter* snapshots_failed_ = nullptr;
  prometheus::Counter* snapshot_bytes_ = nullptr;
  prometheus::Counter* replayed_ = nullptr;
  std::map<RecordRecovery::Outcome, prometheus::Counter*> recoveries_;
  std::map<LossCause, prometheus::Counter*> restarts_;
  std::map<RecordWeightTransfer::Transport, prometheus::Counter*> transfers_;
  std::map<OperationKind, OperationSeries> operations_;
  mutable absl::Mutex mu_;
  absl::Duration oldest_transaction_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
  std::function<bool()> leads_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<HostWatch> host_watch_ ABSL_GUARDED_BY(mu_);
  Runtime* runtime_ ABSL_GUARDED_BY(mu_) = nullptr;
  WorkerSender* workers_ ABSL_GUARDED_BY(mu_) = nullptr;
};

EngineMetrics::EngineMetrics(const Tracer* tracer) : state_(std::make_shared<State>(tracer)) {}
EngineMetrics::~EngineMetrics() = default;

Runtime::Options::Observers EngineMetrics::MakeObservers() {
  State* const state = state_.get();
  return {
      .on_request_completed = [state](const RequestSpan& span) { state->OnRequestCompleted(span); },
      .on_train_batch = [state](int64_t num_requests) { state->OnTrainBatch(num_requests); },
      .on_commit = [state](absl::Duration took,
                           size_t num_writes) { state->OnCommit(took, num_writes); },
      .on_core_step = [state](absl::Duration took) { state->OnCoreStep(took); },
      .on_snapshot = [state](const WorkerSnapshotDone& event) { state->OnSnapshot(event); },
      .on_recovery = [state](const RecordRecovery& action) { state->OnRecovery(action); },
      .on_worker_lost = [state](const RecordWorkerLost& action) { state->OnWorkerLost(action); },
      .on_weight_transfer =
          [state](const RecordWeightTransfer& action) { state->OnWeightTransfer(action); }};
}

void EngineMetrics::ShowState(Runtime& runtime, WorkerSender& workers) {
  state_->Show(&runtime, &workers);
}

void EngineMetrics::SetLeadershipCheck(std::function<bool()> leads) {
  state_->SetLeadershipCheck(std::move(leads));
}

void EngineMetrics::SetHostWatch(std::unique_ptr<HostWatch> watch) {
  state_->SetHostWatch(std::move(watch));
}

void EngineMetrics::OnOldestTransaction(absl::Duration age) { state_->OnOldestTransaction(age); }

void EngineMetrics::HideState() { state_->Show(nullptr, nullptr); }

std::shared_ptr<prometheus::Registry> EngineMetrics::registry() const { return state_; }

}  // namespace lathe::engine
