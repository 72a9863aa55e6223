// The shell around the core: threads, durability, and the state that callers wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/time/clock.h"
#include "libs/common/tracing/tracer.h"
#include "services/engine/core/core.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/runtime/call_table.h"
#include "services/engine/runtime/change_log.h"
#include "services/engine/runtime/checkpoint_dirs.h"
#include "services/engine/runtime/commit_loop.h"
#include "services/engine/runtime/directory.h"
#include "services/engine/runtime/event_queue.h"
#include "services/engine/runtime/purger.h"
#include "services/engine/runtime/queue_view.h"
#include "services/engine/runtime/replay_divergence.h"
#include "services/engine/runtime/request_lookup.h"
#include "services/engine/runtime/result_hub.h"
#include "services/engine/runtime/results.h"
#include "services/engine/runtime/sample_completions.h"
#include "services/engine/runtime/sample_streams.h"
#include "services/engine/runtime/series_book.h"
#include "services/engine/runtime/series_folder.h"
#include "services/engine/runtime/series_heads.h"
#include "services/engine/runtime/session_traces.h"
#include "services/engine/runtime/tenant_rooms.h"
#include "services/engine/runtime/worker_sender.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Owns seven threads: the core's (events to actions), the store's (group commit), one that purges,
// one that folds metrics, a ticker, one that compares replayed results, and one that looks up
// requests the core no longer holds. Callers come from gRPC's threads. main() constructs it, then
// passes the worker sender to Start.
class Runtime {
 public:
  struct Options {
    CoreOptions core;
    // Maximum number of calls that wait for the core. More are refused with ResourceExhausted.
    size_t max_waiting_calls = 65536;
    // A call whose change is not durable after this time fails as unavailable. The change may still
    // become durable; a repeated call then finds it.
    std::chrono::milliseconds max_call_time = std::chrono::seconds(4);
    // Memory for bodies that are also in the store. A larger value saves reads when work is
    // dispatched late.
    int64_t max_cached_body_bytes = int64_t{1} << 30;
    // Memory for finished results that are also in the store.
    int64_t max_cached_result_bytes = int64_t{256} << 20;
    // Directory of the checkpoint directories that the core names.
    std::filesystem::path checkpoints_dir;
    // Checkpoints that are objects; without objects, they are directories.
    StoredCheckpoints stored_checkpoints;
    // Time for which a directory that no row names stays in the trash.
    absl::Duration trash_kept = absl::Hours(7 * 24);
    // Metrics of runs that are kept.
    SeriesOptions series;
    // Called on the store's thread when the store failed. Nothing may be acknowledged any more, so
    // it should end the process.
    std::function<void(const absl::Status&)> on_fatal;
    // Callbacks for metrics. Each may be empty. A callback must not block, and may run on any of
    // the runtime's threads.
    struct Observers {
      // The request's result is durable.
      std::function<void(const RequestSpan&)> on_request_completed;
      std::function<void(int64_t num_requests)> on_train_batch;
      std::function<void(absl::Duration, size_t num_writes)> on_commit;
      // Time that the core took for one event, its actions included.
      std::function<void(absl::Duration)> on_core_step;
      // A worker wrote a snapshot, or failed to.
      std::function<void(const WorkerSnapshotDone&)> on_snapshot;
      std::function<void(const RecordRecovery&)> on_recovery;
      std::function<void(const RecordWorkerLost&)> on_worker_lost;
      std::function<void(const RecordWeightTransfer&)> on_weight_transfer;
    };
    Observers observers;
    // Sends spans; null: no traces. It must outlive the runtime.
    Tracer* tracer = nullptr;
  };

  // `store` and `clock` must outlive this object.
  Runtime(Options options, Store& store, Clock& clock);
  ~Runtime();

  // Takes leadership and starts the threads. `sender` must outlive the runtime.
  absl::Status Start(WorkerSender& sender);
  // Starts as the leader that `state` was loaded for.
  absl::Status Start(WorkerSender& sender, StoredState state);
  // Releases every caller that waits for a result, so that a server with open long polls can shut
  // down.
  void ReleaseWaiters() {
    hub_.ReleaseAll();
    completions_.ReleaseAll();
  }
  // Handles the posted events, commits, and fails the calls that are still open. May be called
  // twice.
  void Stop();

  // Posts `event`, which has a member `call`. `done` receives its Answer on a thread of the
  // runtime, which it must not block. When too many calls wait, `done` gets an error at once.
  // `span` is that of the request which a Submit makes; see BeginSpan.
  template <typename CallEvent>
  void Call(CallEvent event, CallTable::Callback done, const SpanContext& span = {}) {
    // A drain has no deadline: it takes as long as the remaining work.
    constexpr bool kIsPatient = std::is_same_v<CallEvent, Drain>;
    bool may_repeat = true;
    if constexpr (std::is_same_v<CallEvent, Submit>) {
      done = request_lookup_.Resolve(event, std::move(done));
      may_repeat = HasKey(event) || !event.idempotency_key.empty();
    }
    event.call = calls_.Add(std::move(done), kIsPatient ? CallTable::Time::max() : CallDeadline(),
                            may_repeat, span);
    const CallId call = event.call;
    // The core answers calls that write nothing even while the disk is full.
    constexpr bool kWrites = !std::is_same_v<CallEvent, Heartbeat>;
    // Files that the core would own.
    std::string body_id;
    std::string checkpoint_dir;
    if constexpr (std::is_same_v<CallEvent, Submit>) body_id = event.payload.body_id;
    if constexpr (std::is_same_v<CallEvent, CopyCheckpoint>) checkpoint_dir = event.dir;
    if (kWrites && is_disk_full_) {
      RefuseFull(call);
    } else if (events_.TryPushCall(std::move(event))) {
      return;
    } else {
      RefuseCall(call);
    }
    // The core has not received them.
    bodies_.Forget(body_id);
    if (!checkpoint_dir.empty()) checkpoint_dirs_->Delete(checkpoint_dir);
  }
  // Posts an event whose outcome no caller waits for.
  void Post(EventBody event) { events_.Push(std::move(event)); }
  // Call when the answer with the result was written to a caller of the tenant. While too many
  // events wait this has no effect: an undelivered result is only kept for longer.
  void RecordDelivered(const std::string& tenant_id, const std::string& request_id) {
    if (!hub_.MarkDelivered(tenant_id, request_id)) return;
    events_.TryPushCall(Delivered{request_id, tenant_id});
  }

  // Checks a user's points, as SeriesHeads does, and makes them durable. May read the store. `done`
  // receives an Answer, on this thread or one of the runtime, which it must not block.
  void AppendPoints(PointEntry entry, CallTable::Callback done);

  // Makes points of the engine's own series durable soon. Drops them if there is no room.
  void AppendOwnPoints(PointEntryPtr entry);

  Bodies& bodies() { return bodies_; }
  Results& results() { return results_; }
  ResultHub& hub() { return hub_; }
  SampleStreams& streams() { return streams_; }
  SampleCompletions& completions() { return completions_; }
  Directory& directory() { return directory_; }
  TenantRooms& tenant_rooms() { return tenant_rooms_; }
  const CoreOptions& core_options() const { return options_.core; }
  SessionTraces& traces() { return traces_; }
  SeriesBook& series_book() { return series_book_; }
  ChangeLog& changes() { return changes_; }
  const SeriesOptions& series_options() const { return options_.series; }
  const ReplayDivergence& replay_divergence() const { return divergence_; }
  Store& store() { return store_; }
  Clock& clock() { return clock_; }
  CheckpointDirs& checkpoint_dirs() { return *checkpoint_dirs_; }
  const std::filesystem::path& checkpoints_dir() const { return options_.checkpoints_dir; }
  int64_t term() const { return term_; }
  // Makes streams() receive the sample's tokens, including the earlier ones. On the core's thread.
  void ShowTokens(const std::string& request_id) { sender_->StreamSample(request_id); }
  // Returns whether and why an unfinished request waits, for its caller.
  QueueStatus QueueOf(const std::string& request_id);
  // Returns why no request of a model starts, for people; empty: no special reason.
  std::string WaitReasonOf(const std::string& model_id) { return queue_view_.ReasonOf(model_id); }
  // Returns the unfinished requests by operation, of a tenant or of all.
  std::vector<QueueCount> QueuesOf(const std::string& tenant_id) {
    return queue_view_.CountsOf(tenant_id);
  }
  std::vector<QueueCount> AllQueues() { return queue_view_.CountsOfAll(); }
  QueueSums AllQueueSums() { return queue_view_.SumsOfAll(); }
  std::vector<TenantQueue> LongestQueues(size_t max_tenants) {
    return queue_view_.Longest(max_tenants);
  }
  // Returns the time since the core handled its last event. It gets one every second.
  absl::Duration CoreIdleTime() const;
  // Returns ResourceExhausted `disk_full`, naming the volume, while the store has no room for
  // accepted work. Every call that would write is refused in the same way.
  absl::Status CheckRoom();
  // Returns the groups that are degraded or refused, with the reason.
  std::map<std::string, NotifyQueueState> Troubles();
  // Returns the state of the groups that are drained.
  std::map<std::string, NotifyGroupDrain> GroupDrains();
  size_t num_waiting_events() const { return events_.size(); }
  // Number of open watch streams from gateways, for metrics.
  std::atomic<int64_t>& num_watch_streams() { return num_watch_streams_; }
  // Returns the span of a request that comes with this traceparent; no context: without a tracer.
  SpanContext BeginSpan(std::string_view traceparent) const {
    return options_.tracer == nullptr ? SpanContext() : options_.tracer->Begin(traceparent);
  }
  int64_t NowNanos() { return absl::ToUnixNanos(clock_.Now()); }

 private:
  static bool IsLive(const RequestRow& row) {
    return row.state == RequestState::kAccepted || row.state == RequestState::kDispatched;
  }

  CallTable::Time CallDeadline() const {
    return std::chrono::steady_clock::now() + options_.max_call_time;
  }
  void RefuseCall(CallId call);
  void RefuseFull(CallId call);
  void RunCore(StoredState state);
  void StepCore(Core& core, EventBody body);
  // Passes the parts of an event that traces show to traces_ and queue_view_.
  void Trace(const Event& event);
  // Runs before the actions of a step, because some of them may already end a new request.
  // `span` is that of the request which the step's event submits.
  void TraceAccepted(const SpanContext& span);
  SpanContext SpanOf(const Event& event);
  // Empty: unknown.
  std::string BaseModelOf(const RequestSpan& span);
  void TraceDispatch(const SendToWorker& action);
  void TraceSnapshot(const WorkerSnapshotDone& event);
  void TraceFailure(const std::string& request_id, const ErrorInfo& error);

  void Execute(Commit& action);
  void Execute(Answer& action);
  void Execute(MakeResult& action);
  void Execute(NotifyDone& action);
  void Execute(NotifyQueueState& action);
  void Execute(NotifyModelState& action) { queue_view_.SetModelState(action); }
  void Execute(NotifyGroup& action) { hub_.SetGroup(action.request_id, action.group); }
  void Execute(NotifyGroupDrain& action);
  void Execute(ContinueLater&) { events_.Push(Continue{}); }
  void Execute(SendToWorker& action);
  void Execute(DeleteFiles& action);
  void Execute(DeleteOtherFiles& action);
  void Execute(ForgetBody& action);
  void Execute(ForgetResult& action);
  void Execute(RecordRecovery& action);
  void Execute(CompareReplay& action);
  void Execute(RecordWorkerLost& action);
  void Execute(RecordWeightTransfer& action);
  void Execute(NotifyTenant& action) { tenant_rooms_.Publish(action); }

  absl::Status LoadCompletions(const StoredState& state);

  // The next functions run on the store's thread.
  void OnFull(const absl::Status& status);
  void OnDurable(const std::vector<CommitLoop::Item>& items);
  void OnDurable(const CommitLoop::Item& item, int64_t now);
  void OnCompleted(const std::string& request_id, int64_t now);
  // Returns an empty function if no metrics are kept.
  std::function<std::vector<PointEntryPtr>(const std::vector<CommitLoop::Item>&)> MakePointsOf();
  std::vector<PointEntryPtr> PointsOf(const std::vector<CommitLoop::Item>& items);
  // Returns null for a request that no run has.
  PointEntryPtr PointsOf(const CompleteRequest& write);
  // OnTick runs on the ticker's thread.
  void OnTick();

  const Options options_;
  Store& store_;
  Clock& clock_;
  WorkerSender* sender_ = nullptr;
  int64_t term_ = 0;
  std::atomic<int64_t> num_watch_streams_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> last_step_at_;
  std::atomic<bool> is_disk_full_ = false;

  Bodies bodies_;
  Results results_;
  ResultHub hub_;
  SampleStreams streams_;
  SampleCompletions completions_;
  SessionTraces traces_;
  QueueView queue_view_;
  ReplayDivergence divergence_;
  SeriesBook series_book_;
  ChangeLog changes_;
  SeriesHeads series_heads_;
  Directory directory_;
  TenantRooms tenant_rooms_;
  CallTable calls_;
  RequestLookup request_lookup_;
  const std::unique_ptr<CheckpointDirs> checkpoint_dirs_;
  EventQueue events_;
  std::vector<Action> actions_;  // actions of the current step; the core's thread only

  absl::Mutex mu_;
  absl::Status room_ ABSL_GUARDED_BY(mu_);  // not OK while is_disk_full_
  std::map<std::string, NotifyQueueState> troubles_ ABSL_GUARDED_BY(mu_);  // by group
  std::map<std::string, NotifyGroupDrain> drains_ ABSL_GUARDED_BY(mu_);    // by group

  std::unique_ptr<Purger> purger_;
  std::unique_ptr<SeriesFolder> folder_;
  std::unique_ptr<CommitLoop> commits_;
  std::unique_ptr<NamedThread> core_thread_;
  std::unique_ptr<PeriodicTask> ticker_;
  std::unique_ptr<PeriodicTask> comparer_;
};

}  // namespace lathe::engine
