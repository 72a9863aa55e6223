#include "services/worker/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <c10/core/InferenceMode.h>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/collectives/communicators.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/executor/lockstep/lockstep.h"
#include "services/worker/executor/saves/checkpoint_writer.h"
#include "services/worker/executor/startup/fingerprint.h"
#include "services/worker/executor/startup/loaded_base.h"
#include "services/worker/executor/startup/memory_use.h"
#include "services/worker/executor/versions/recovery_thread.h"
#include "services/worker/executor/versions/version_thread.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {
namespace {

// Returns the number of idle rounds in about `pause`. Only rank 0 reads the clock.
int64_t IdleRounds(absl::Duration pause) {
  return std::max<int64_t>(1, absl::IDivDuration(pause, Lockstep::Options().idle, &pause));
}

// Replicas are the outermost axis of the mesh.
ReplicaPlace PlaceOf(const ExecutorOptions& options, const RankGroup& all) {
  const int ranks_per_replica = options.mesh.world() / options.mesh.dp;
  return {.index = options.rank / ranks_per_replica, .count = options.mesh.dp, .all = all};
}

}  // namespace

class Executor::Thread {
 public:
  Thread(ExecutorOptions options, ExecutorListener listener,
         std::function<void(absl::Status)> on_load_failed, ExecutorPeers peers,
         VersionExchange versions)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        on_load_failed_(std::move(on_load_failed)),
        peers_(std::move(peers)),
        versions_(versions),
        device_(ChooseDevice(options_.device)),
        queue_(options_.max_queued_commands) {
    if (device_.ok()) state_.device = device_->str();
    state_.bytes_total = WeightBytes(options_.model_path);
  }

  void Start() {
    thread_.emplace("executor", [this] { Run(); });
  }

  bool TryStop(absl::Duration patience) {
    stopping_ = true;
    queue_.Close();
    if (!thread_.has_value()) return true;
    if (!is_alone() && !has_left_.WaitForNotificationWithTimeout(patience)) return false;
    thread_->Join();
    return true;
  }

  absl::Status Submit(Command command, std::string encoded) {
    if (!leads()) return absl::FailedPreconditionError("rank 0 takes this group's commands");
    if (queue_.TryPush(SubmittedCommand{std::move(command), std::move(encoded)})) {
      return absl::OkStatus();
    }
    if (queue_.closed()) return absl::CancelledError("the executor has been stopped");
    return absl::ResourceExhaustedError(
        absl::StrFormat("command queue holds %d commands, limit is %d", queue_.size(),
                        options_.max_queued_commands));
  }

  // Waits for room in the queue, because a Reset must not be lost.
  void Reset(int64_t generation) {
    if (leads()) queue_.Push(ResetItem{generation});
  }

  ExecutorState State() const {
    absl::MutexLock lock(&mu_);
    ExecutorState state = state_;
    state.progress = progress_;
    if (options_.storage.num_fetched != nullptr) state.progress += *options_.storage.num_fetched;
    state.is_busy = is_busy_;
    return state;
  }

 private:
  bool is_alone() const { return options_.mesh.world() == 1; }
  bool leads() const { return options_.rank == 0; }

  void Run() {
    const c10::InferenceMode no_autograd;
    if (options_.num_threads > 0) at::set_num_threads(options_.num_threads);
    try {
      LoadAndWork();
    } catch (const RanksDisagree& error) {
      OnDisagreement(error.status);
    }
    Leave();
    // Destroyed here, so that the other ranks do not wait for this one.
    lockstep_.reset();
    ranks_.reset();
  }

  // From now on this rank waits for no other rank.
  void Leave() {
    if (!has_left_.HasBeenNotified()) has_left_.Notify();
  }

  // Reports the first disagreement, unless this rank was asked to stop: the others may have stopped
  // before. Any thread. With NCCL, another thread calls it before it ends the collective, and the
  // pass goes on with whatever is in memory. So no report is sent afterwards.
  void OnDisagreement(const absl::Status& status) {
    if (disagrees_.exchange(true) || stopping_) return;
    peers_.on_disagreement(status);
  }

  void LoadAndWork() {
    absl::Status status = Connect();
    if (absl::IsCancelled(status)) return;
    // Another rank has arrived and left again.
    if (absl::IsUnavailable(status) && !is_alone()) return OnDisagreement(status);
    if (status.ok()) status = Load();
    if (!status.ok()) {
      on_load_failed_(std::move(status));
      return;
    }
    CheckpointWriter writer(*base_->store, listener_.on_report,  // used by rank 0 only
                            [this](SaveWritten written) { queue_.Push(written); });
    writer_ = &writer;
    VersionFiles version_files(*base_->store, base_->model->device(), versions_.reader);
    // The queue is closed before these threads are joined, so that they never wait for room in it.
    VersionThread versions(version_files,
                           [this](VersionJobDone done) { queue_.Push(std::move(done)); });
    version_jobs_ = lockstep_ ? &lockstep_->VersionsBy(versions) : &versions;
    const RecoveryFiles recovery_files(*base_->store);
    RecoveryThread recovery(recovery_files,
                            [this](RecoveryJobDone done) { queue_.Push(std::move(done)); });
    recovery_jobs_ = lockstep_ ? &lockstep_->RecoveryBy(recovery) : &recovery;
    // Runs before the objects that the core uses are destroyed, also if the ranks disagree.
    const absl::Cleanup end_core = [this] {
      Leave();
      queue_.Close();
      core_.reset();
    };
    device_clock_ = MakeDeviceClock(*device_);
    MakeCore(/*generation=*/0);
    if (lockstep_.has_value()) {
      WorkInLockstep();
    } else {
      Work();
    }
  }

  // Connects one of several ranks to the others.
  absl::Status Connect() {
    if (is_alone()) return absl::OkStatus();
    RETURN_IF_ERROR(device_.status());
    ASSIGN_OR_RETURN(const RendezvousPoint rendezvous, peers_.await_rendezvous());
    ASSIGN_OR_RETURN(ranks_, ConnectRanks(std::move(peers_.socket),
                                          {.mesh = options_.mesh,
                                           .rank = options_.rank,
                                           .rendezvous = rendezvous,
                                           .device = *device_,
                                           .must_agree = MustAgree(options_, *device_),
                                           .timeout = options_.collective_timeout,
                                           .on_failure = [this](const absl::Status& status) {
                                             OnDisagreement(status);
                                           }}));
    lockstep_.emplace(ranks_->control(), queue_, Lockstep::Options{.decode = peers_.decode});
    return absl::OkStatus();
  }

  absl::Status Load() {
    if (!device_.ok()) return device_.status();
    const int64_t total = State().bytes_total;
    FailPoint("worker.load.base");
    absl::StatusOr<LoadedBase> base = LoadBase(
        options_, *device_, [this, total](double fraction) { ReportProgress(fraction, total); },
        ranks_ ? ranks_->control() : RankGroup(), ranks_ ? ranks_->groups() : RankGroups());
    if (!base.ok()) return base.status();
    base_ = *std::move(base);
    FreeUnusedTensorMemory();  // freed by the measurements
    FailPoint("worker.start.ready");
    {
      absl::MutexLock lock(&mu_);
      state_.bytes_loaded = total;
      state_.model = base_->info;
      state_.arena_bytes = base_->memory.arena_bytes;
      state_.memory = DescribeMemory(base_->memory, {}, MeasureProcess(*device_));
      state_.ready = true;
    }
    LogInfo("base model loaded", {{"name", base_->info.name}, {"bytes", total}});
    listener_.on_state_changed();
    return absl::OkStatus();
  }

  void ReportProgress(double fraction, int64_t total) {
    ++progress_;
    {
      absl::MutexLock lock(&mu_);
      state_.bytes_loaded = static_cast<int64_t>(fraction * static_cast<double>(total));
    }
    listener_.on_state_changed();
  }

  void MakeCore(int64_t generation) {
    if (core_ != nullptr) past_counters_ = Add(past_counters_, core_->counters());
    CoreOptions options;
    options.trainer = {.token_budget = base_->memory.token_budget,
                       .head_chunk_elements = base_->memory.head_chunk_elements,
                       .arena_bytes = base_->memory.arena_bytes,
                       .numerics = base_->numerics};
    options.sampling.kv_cache_bytes = base_->memory.kv_cache_bytes;
    options.sampling.head_chunk_elements = base_->memory.sampling_chunk_elements;
    options.sampling.max_prefill_tokens_beside_decode = base_->prefill_chunk_tokens;
    options.sampling.prefix_cache = options_.prefix_cache;
    // With FSDP, a replayed graph would read a buffer that holds another layer's unsharded weights
    // by then.
    options.sampling.decode_graphs = options_.decode_graphs && options_.mesh.fsdp == 1;
    if (ranks_) options.replica = PlaceOf(options_, ranks_->groups().all);
    options.sampling_share = options_.sampling_share;
    options.model_ops = {.ranks = ranks_ ? ranks_->groups() : RankGroups(),
                         .nonfinite_gradients = options_.nonfinite_gradients,
                         .adapter_bytes = base_->memory.adapter_bytes,
                         .save_bytes = base_->memory.save_bytes + base_->memory.host_save_bytes};
    if (options_.version_bytes > 0) options.model_ops.version_bytes = options_.version_bytes;
    const ExecutorParts parts{.model = *base_->model,
                              .tokenizer = base_->tokenizer ? &*base_->tokenizer : nullptr,
                              .store = *base_->store,
                              .writer = *writer_,
                              .version_jobs = *version_jobs_,
                              .recovery_jobs = *recovery_jobs_,
                              .device_clock = *device_clock_,
                              .served_versions = versions_.served};
    generation_ = generation;
    if (versions_.served != nullptr) versions_.served->Clear();
    core_.reset();  // frees the old KV cache before the new one is made
    core_ = std::make_unique<ExecutorCore>(parts, options, generation);
  }

  void Work() {
    bool has_updates = false;
    while (!stopping_) {
      while (std::optional<ExecutorItem> item = NextItem()) {
        Apply(*std::move(item));
        has_updates = true;
      }
      const bool worked = core_->RunUnit([this] { ApplyDuringStep(); });
      ++progress_;
      Deliver(std::exchange(has_updates, false));
      if (worked) continue;
      is_busy_ = false;
      std::optional<ExecutorItem> item = WaitForItem();
      is_busy_ = true;
      if (!item.has_value()) return;
      Apply(*std::move(item));
      has_updates = true;  // its effects, which may make no report, show after the next unit
    }
  }

  // nullopt: the queue is closed. After an idle pause, returns memory cached for the next pass to
  // the system.
  std::optional<ExecutorItem> WaitForItem() {
    std::optional<ExecutorItem> item = queue_.PopFor(options_.pause);
    if (item.has_value() || queue_.closed()) return item;
    FreeUnusedTensorMemory();
    return queue_.Pop();
  }

  // Applies commands and delivers reports while a step runs. A Reset waits for its end.
  void ApplyDuringStep() {
    ++progress_;
    bool has_updates = false;
    while (!reset_.has_value()) {
      std::optional<ExecutorItem> item = queue_.TryPop();
      if (!item.has_value()) break;
      has_updates = true;
      if (std::holds_alternative<ResetItem>(*item)) {
        reset_ = std::get<ResetItem>(*item);
      } else {
        Apply(*std::move(item));
      }
    }
    Deliver(has_updates);
  }

  std::optional<ExecutorItem> NextItem() {
    if (reset_.has_value()) return *std::exchange(reset_, std::nullopt);
    return queue_.TryPop();
  }

  void Apply(ExecutorItem item) {
    std::visit([this](auto&& one) { ApplyOne(std::forward<decltype(one)>(one)); }, std::move(item));
  }
  void ApplyOne(ResetItem&& reset) { MakeCore(reset.generation); }
  void ApplyOne(SubmittedCommand&& submitted) { core_->Apply(std::move(submitted.command)); }
  template <typename Done>
  void ApplyOne(Done&& done) {
    core_->Apply(std::forward<Done>(done));
  }

  // Every rank runs the same rounds until one of them stops. Reports of a unit are delivered in the
  // next round, once the ranks are known to agree after it.
  void WorkInLockstep() {
    Fingerprint fingerprint;
    std::vector<ReportEvent> reports;
    int64_t num_idle_rounds = 0;
    bool is_idle = false;
    const auto take_reports = [&] {
      std::vector<ReportEvent> taken = core_->TakeReports();
      fingerprint.Add(taken);
      std::move(taken.begin(), taken.end(), std::back_inserter(reports));
    };
    while (std::optional<Lockstep::Round> round =
               lockstep_->Next({.generation = generation_,
                                .fingerprint = fingerprint.value(),
                                .is_idle = is_idle && reports.empty(),
                                .preferred = core_->preferred_use(),
                                .wants_to_stop = stopping_})) {
      const bool has_updates = !round->items.empty() || !reports.empty();
      SendReports(std::exchange(reports, {}));
      is_busy_ = has_updates || !is_idle;
      for (ExecutorItem& item : round->items) Apply(std::move(item));
      const bool worked = core_->RunUnit(round->preferred, [&] {
        ++progress_;
        take_reports();
        ReportBegun(reports);
      });
      ++progress_;
      if (!worked) base_->model->Idle();
      take_reports();
      fingerprint.Add(core_->counters());
      // Does not depend on the reports, because some of them exist on rank 0 only.
      if (worked || !round->items.empty()) {
        fingerprint.Add(core_->ModelStates(), core_->Versions());
      }
      if (has_updates || !reports.empty()) Publish();
      is_idle = !worked;
      num_idle_rounds = has_updates || worked ? 0 : num_idle_rounds + 1;
      if (num_idle_rounds == IdleRounds(options_.pause)) FreeUnusedTensorMemory();
      is_busy_ = !is_idle || !reports.empty();
    }
    SendReports(std::move(reports));
    OnDisagreement(absl::UnavailableError("another rank of the group was asked to stop"));
  }

  // Delivers Started reports before the requests run. If one of them ends this process, the engine
  // knows which ones ran.
  void ReportBegun(std::vector<ReportEvent>& reports) {
    const auto rest = std::stable_partition(
        reports.begin(), reports.end(),
        [](const ReportEvent& event) { return !std::holds_alternative<Started>(event.report); });
    std::vector<ReportEvent> begun(std::make_move_iterator(rest),
                                   std::make_move_iterator(reports.end()));
    reports.erase(rest, reports.end());
    SendReports(std::move(begun));
  }

  // Publishes the state before its reports: the effect of every report is then visible in State().
  void Deliver(bool has_updates) {
    std::vector<ReportEvent> reports = core_->TakeReports();
    if (has_updates || !reports.empty()) Publish();
    SendReports(std::move(reports));
  }

  void Publish() {
    std::vector<ModelState> models = core_->ModelStates();
    std::vector<HeldVersion> versions = core_->Versions();
    Traffic traffic = ranks_ ? ranks_->traffic() : Traffic();
    MemoryUse memory =
        DescribeMemory(base_->memory, core_->memory_in_use(), MeasureProcess(*device_));
    absl::MutexLock lock(&mu_);
    state_.memory = std::move(memory);
    state_.models = std::move(models);
    state_.versions = std::move(versions);
    state_.counters = Add(past_counters_, core_->counters());
    state_.kv_usage = core_->kv_usage();
    state_.version_usage = core_->version_usage();
    state_.traffic = std::move(traffic);
  }

  void SendReports(std::vector<ReportEvent> reports) {
    if (!leads() || disagrees_) return;
    for (ReportEvent& report : reports) listener_.on_report(std::move(report));
  }

  const ExecutorOptions options_;
  const ExecutorListener listener_;
  const std::function<void(absl::Status)> on_load_failed_;
  ExecutorPeers peers_;
  const VersionExchange versions_;
  const absl::StatusOr<at::Device> device_;
  BoundedQueue<ExecutorItem> queue_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<bool> is_busy_ = true;
  std::atomic<bool> disagrees_ = false;
  absl::Notification has_left_;
  mutable absl::Mutex mu_;
  ExecutorState state_ ABSL_GUARDED_BY(mu_);

  // Executor thread only.
  std::unique_ptr<DeviceClock> device_clock_;  // used by the core
  std::optional<LoadedBase> base_;
  std::unique_ptr<Communicators> ranks_;  // null: a single rank
  std::optional<Lockstep> lockstep_;      // set with several ranks
  CheckpointWriter* writer_ = nullptr;
  VersionJobs* version_jobs_ = nullptr;
  RecoveryJobs* recovery_jobs_ = nullptr;
  std::unique_ptr<ExecutorCore> core_;
  int64_t generation_ = 0;
  std::optional<ResetItem> reset_;  // arrived during a step
  ExecutorCounters past_counters_;  // counters of the cores before the last Reset

  std::optional<NamedThread> thread_;
};

Executor::Executor(ExecutorOptions options, ExecutorListener listener,
                   std::function<void(absl::Status)> on_load_failed, ExecutorPeers peers,
                   VersionExchange versions)
    : thread_(std::make_unique<Thread>(std::move(options), std::move(listener),
                                       std::move(on_load_failed), std::move(peers), versions)) {}

Executor::~Executor() { Stop(); }

void Executor::Start() { thread_->Start(); }
void Executor::Stop() { TryStop(absl::InfiniteDuration()); }
bool Executor::TryStop(absl::Duration patience) { return thread_->TryStop(patience); }
absl::Status Executor::Submit(Command command, std::string encoded) {
  return thread_->Submit(std::move(command), std::move(encoded));
}
void Executor::Reset(int64_t generation) { thread_->Reset(generation); }
ExecutorState Executor::State() const { return thread_->State(); }

}  // namespace lathe::worker
