// The shell around the core: threads, durability, and what callers wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/concurrency/periodic_task.h"
#include "libs/common/time/clock.h"
#include "services/engine/core/core.h"
#include "services/engine/core/event_log.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/runtime/call_table.h"
#include "services/engine/runtime/commit_loop.h"
#include "services/engine/runtime/directory.h"
#include "services/engine/runtime/event_queue.h"
#include "services/engine/runtime/forgotten_requests.h"
#include "services/engine/runtime/queue_view.h"
#include "services/engine/runtime/replay_divergence.h"
#include "services/engine/runtime/result_hub.h"
#include "services/engine/runtime/results.h"
#include "services/engine/runtime/sample_completions.h"
#include "services/engine/runtime/sample_streams.h"
#include "services/engine/runtime/session_traces.h"
#include "services/engine/runtime/worker_sender.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Five threads: the core's (events to actions), the store's (group commit), a ticker, one that
// compares what was run again, and one that looks up what the core has forgotten. Callers come from
// gRPC's threads. main() builds it, gives it the worker sender, starts it.
class Runtime {
 public:
  struct Options {
    CoreOptions core;
    // Calls that wait for the core; above it they are refused with ResourceExhausted.
    size_t max_waiting_calls = 65536;
    // A call whose change is not durable by then fails as unavailable. The change may still become
    // durable; the same call again then finds it.
    std::chrono::milliseconds max_call_time = std::chrono::seconds(4);
    // Memory of bodies that are also in the store. More: fewer reads when work is dispatched late.
    int64_t max_cached_body_bytes = int64_t{1} << 30;
    // Memory of finished results that are also in the store.
    int64_t max_cached_result_bytes = int64_t{256} << 20;
    // Below it live the checkpoints the core names.
    std::filesystem::path checkpoints_dir;
    // Every event is appended to this file; empty: none.
    std::string event_log;
    // The store failed: nothing may be acknowledged any more. Should end the process. Called on
    // the store's thread.
    std::function<void(const absl::Status&)> on_fatal;
    // For metrics; each may be empty, must not block and may run on any thread of the runtime.
    struct Observers {
      // Its result is durable.
      std::function<void(const RequestSpan&)> on_request_completed;
      std::function<void(int64_t num_requests)> on_train_batch;
      std::function<void(absl::Duration, size_t num_writes)> on_commit;
      // How long the core took for one event, its actions included.
      std::function<void(absl::Duration)> on_core_step;
      // What a worker wrote, or failed to.
      std::function<void(const WorkerSnapshotDone&)> on_snapshot;
      std::function<void(const NoteRecovery&)> on_recovery;
      std::function<void(const NoteWorkerLost&)> on_worker_lost;
      std::function<void(const NoteVersionTravel&)> on_version_travel;
    };
    Observers observers;
  };

  // `store` and `clock` must outlive this.
  Runtime(Options options, Store& store, Clock& clock);
  ~Runtime();

  // Takes leadership and begins to work. `sender` must outlive the runtime.
  absl::Status Start(WorkerSender& sender);
  // As the leader that `state` was loaded for.
  absl::Status Start(WorkerSender& sender, StoredState state);
  // Lets go of everybody who waits for a result, so that a server with open polls can shut down.
  void ReleaseWaiters() {
    hub_.ReleaseAll();
    completions_.ReleaseAll();
  }
  // Handles what was posted, commits, and fails the calls that are still open. May be called twice.
  void Stop();

  // Posts `event` (one with a member `call`); `done` runs on a thread of the runtime, and must not
  // block it, with its Answer, or at once with an error when too many calls wait.
  template <typename CallEvent>
  void Call(CallEvent event, CallTable::Callback done) {
    // A drain takes as long as the work that is left.
    constexpr bool kIsPatient = std::is_same_v<CallEvent, Drain>;
    if constexpr (std::is_same_v<CallEvent, Submit>) {
      done = forgotten_.Resolve(event, std::move(done));
    }
    event.call = calls_.Add(std::move(done), kIsPatient ? CallTable::Time::max() : CallDeadline());
    const CallId call = event.call;
    // What changes nothing is answered by the core even while the disk is full.
    constexpr bool kWrites = !std::is_same_v<CallEvent, Heartbeat>;
    std::string body_id;
    if constexpr (std::is_same_v<CallEvent, Submit>) body_id = event.payload.body_id;
    if (kWrites && is_disk_full_) {
      RefuseFull(call);
    } else if (events_.TryPushCall(std::move(event))) {
      return;
    } else {
      RefuseCall(call);
    }
    bodies_.Forget(body_id);  // the core has not seen it
  }
  // An event that nobody waits for.
  void Post(EventBody event) { events_.Push(std::move(event)); }

  Bodies& bodies() { return bodies_; }
  Results& results() { return results_; }
  ResultHub& hub() { return hub_; }
  SampleStreams& streams() { return streams_; }
  SampleCompletions& completions() { return completions_; }
  Directory& directory() { return directory_; }
  SessionTraces& traces() { return traces_; }
  const ReplayDivergence& replay_divergence() const { return divergence_; }
  Store& store() { return store_; }
  Clock& clock() { return clock_; }
  const std::filesystem::path& checkpoints_dir() const { return options_.checkpoints_dir; }
  int64_t term() const { return term_; }
  // Tokens of the sample come to streams(), those it has already too. On the core's thread.
  void ShowTokens(const std::string& request_id) { sender_->StreamSample(request_id); }
  // Whether and why a request that is under way waits, for its caller.
  QueueStatus QueueOf(const std::string& request_id);
  // Since the core handled its last event; it gets one every second.
  absl::Duration CoreIdleTime() const;
  // ResourceExhausted `disk_full`, naming the volume, while the store has no room for what was
  // accepted; every call that would write is refused so.
  absl::Status CheckRoom();
  // Groups that are degraded or refused, and why.
  std::map<std::string, NotifyQueueState> Troubles();
  // Of those that are drained.
  std::map<std::string, NotifyGroupDrain> GroupDrains();
  size_t num_waiting_events() const { return events_.size(); }
  // Watch streams of gateways that are open, for metrics.
  std::atomic<int64_t>& num_watch_streams() { return num_watch_streams_; }
  int64_t NowNanos() { return absl::ToUnixNanos(clock_.Now()); }

 private:
  static bool IsLive(const RequestRow& row) {
    return row.state == RequestState::kAccepted || row.state == RequestState::kDispatched;
  }

  CallTable::Time CallDeadline() const {
    return std::chrono::steady_clock::now() + options_.max_call_time;
  }
  void SetGroup(const std::string& request_id, const std::string& group);
  void RefuseCall(CallId call);
  void RefuseFull(CallId call);
  void RunCore(StoredState state);
  void StepCore(Core& core, EventBody body);
  void AppendToLog(const Event& event);
  // What of an event a trace shows.
  void Trace(const Event& event);
  // Before the actions of a step: some of them may already tell how a new request ends.
  void TraceAccepted();
  void TraceDispatch(const SendToWorker& action);
  void TraceSnapshot(const WorkerSnapshotDone& event);
  void TraceFailure(const std::string& request_id, const ErrorInfo& error);
  void CloseEventLog();

  void Execute(Commit& action);
  void Execute(Answer& action);
  void Execute(MakeResult& action);
  void Execute(NotifyDone& action);
  void Execute(NotifyQueueState& action);
  void Execute(NotifyModelState& action) { queue_view_.SetModelState(action); }
  void Execute(NotifyGroup& action);
  void Execute(NotifyGroupDrain& action);
  void Execute(SendToWorker& action);
  void Execute(DeleteFiles& action);
  void Execute(DeleteOtherFiles& action);
  void Execute(ForgetBody& action);
  void Execute(ForgetResult& action);
  void Execute(NoteRecovery& action);
  void Execute(CompareReplay& action);
  void Execute(NoteWorkerLost& action);
  void Execute(NoteVersionTravel& action);

  absl::Status LoadCompletions(const StoredState& state);

  // On the store's thread.
  void OnFull(const absl::Status& status);
  void OnDurable(const std::vector<CommitLoop::Item>& items);
  void OnDurable(const CommitLoop::Item& item, int64_t now);
  void OnCompleted(const std::string& request_id, int64_t now);
  // On the ticker's thread.
  void OnTick();
  void DeleteDirs();
  std::vector<std::string> ListCheckpointDirs() const;

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
  Directory directory_;
  CallTable calls_;
  ForgottenRequests forgotten_;
  EventQueue events_;
  std::vector<Action> actions_;  // of the step under way; the core's thread only
  std::optional<EventLogWriter> event_log_;
  ActionDigest action_digest_;  // of the events in the log

  absl::Mutex mu_;
  absl::Status room_ ABSL_GUARDED_BY(mu_);  // not OK while is_disk_full_
  std::vector<std::string> dirs_to_delete_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, NotifyQueueState> troubles_ ABSL_GUARDED_BY(mu_);  // by group
  std::map<std::string, NotifyGroupDrain> drains_ ABSL_GUARDED_BY(mu_);    // by group
  // Until the core has said which of them it needs.
  std::vector<std::string> dirs_at_start_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<CommitLoop> commits_;
  std::unique_ptr<NamedThread> core_thread_;
  std::unique_ptr<PeriodicTask> ticker_;
  std::unique_ptr<PeriodicTask> comparer_;
};

}  // namespace lathe::engine
