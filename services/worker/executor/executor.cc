#include "services/worker/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "services/worker/executor/checkpoint_writer.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/executor/loaded_base.h"
#include "services/worker/executor/recovery_thread.h"
#include "services/worker/executor/version_thread.h"
#include "services/worker/memory/tensor_memory.h"

namespace lathe::worker {
namespace {

struct ResetItem {
  int64_t generation = 0;
};

ExecutorCounters Add(const ExecutorCounters& a, const ExecutorCounters& b) {
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

}  // namespace

class Executor::Thread {
 public:
  Thread(ExecutorOptions options, ExecutorListener listener,
         std::function<void(absl::Status)> on_load_failed)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        on_load_failed_(std::move(on_load_failed)),
        device_(ChooseDevice(options_.device)),
        queue_(options_.max_queued_commands) {
    if (device_.ok()) state_.device = device_->str();
    state_.bytes_total = WeightBytes(options_.model_path);
  }

  void Start() {
    thread_.emplace("executor", [this] { Run(); });
  }

  void Stop() {
    stopping_ = true;
    queue_.Close();
    if (thread_.has_value()) thread_->Join();
  }

  absl::Status Submit(Command command) {
    if (queue_.TryPush(std::move(command))) return absl::OkStatus();
    if (queue_.closed()) return absl::CancelledError("the executor has been stopped");
    return absl::ResourceExhaustedError(
        absl::StrFormat("command queue holds %d commands, limit is %d", queue_.size(),
                        options_.max_queued_commands));
  }

  // Waits for room: a Reset must not be lost.
  void Reset(int64_t generation) { queue_.Push(ResetItem{generation}); }

  ExecutorState State() const {
    absl::MutexLock lock(&mu_);
    ExecutorState state = state_;
    state.progress = progress_;
    state.is_busy = is_busy_;
    return state;
  }

 private:
  using Item = std::variant<Command, ResetItem, VersionJobDone, RecoveryJobDone>;

  void Run() {
    const c10::InferenceMode no_autograd;
    if (options_.num_threads > 0) at::set_num_threads(options_.num_threads);
    absl::Status status = Load();
    if (!status.ok()) {
      on_load_failed_(std::move(status));
      return;
    }
    CheckpointWriter writer(*base_->store, listener_.on_report);
    writer_ = &writer;
    VersionFiles version_files(*base_->store, base_->model->device());
    // Closed before the threads are waited for, so that they never wait for room here.
    VersionThread versions(version_files,
                           [this](VersionJobDone done) { queue_.Push(std::move(done)); });
    versions_ = &versions;
    const RecoveryFiles recovery_files(*base_->store);
    RecoveryThread recovery(recovery_files,
                            [this](RecoveryJobDone done) { queue_.Push(std::move(done)); });
    recovery_ = &recovery;
    MakeCore(/*generation=*/0);
    Work();
    queue_.Close();
    core_.reset();
  }

  absl::Status Load() {
    if (!device_.ok()) return device_.status();
    const int64_t total = State().bytes_total;
    FailPoint("worker.load.base");
    absl::StatusOr<LoadedBase> base = LoadBase(
        options_, *device_, [this, total](double fraction) { ReportProgress(fraction, total); });
    if (!base.ok()) return base.status();
    base_ = *std::move(base);
    FreeUnusedTensorMemory();  // what the measurements took
    FailPoint("worker.start.ready");
    {
      absl::MutexLock lock(&mu_);
      state_.bytes_loaded = total;
      state_.model = base_->info;
      state_.arena_bytes = base_->memory.arena_bytes;
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
    options.sampling.head_chunk_elements = base_->memory.head_chunk_elements;
    options.sampling.max_prefill_tokens_beside_decode = base_->prefill_chunk_tokens;
    options.sampling.prefix_cache = options_.prefix_cache;
    options.sampling.decode_graphs = options_.decode_graphs;
    options.sampling_share = options_.sampling_share;
    options.model_ops = {.nonfinite_gradients = options_.nonfinite_gradients,
                         .adapter_bytes = base_->memory.adapter_bytes};
    if (options_.version_bytes > 0) options.model_ops.version_bytes = options_.version_bytes;
    const ExecutorParts parts{.model = *base_->model,
                              .tokenizer = base_->tokenizer ? &*base_->tokenizer : nullptr,
                              .store = *base_->store,
                              .writer = *writer_,
                              .version_jobs = *versions_,
                              .recovery_jobs = *recovery_,
                              .clock = clock_};
    core_.reset();  // frees the old cache before the new one is made
    core_ = std::make_unique<ExecutorCore>(parts, options, generation);
  }

  void Work() {
    bool has_news = false;
    while (!stopping_) {
      while (std::optional<Item> item = NextItem()) {
        Apply(*std::move(item));
        has_news = true;
      }
      const bool worked = core_->RunUnit([this] { ApplyDuringStep(); });
      ++progress_;
      Deliver(std::exchange(has_news, false));
      if (worked) continue;
      is_busy_ = false;
      std::optional<Item> item = WaitForItem();
      is_busy_ = true;
      if (!item.has_value()) return;
      Apply(*std::move(item));
      has_news = true;  // what it does, not all of which is reported, shows after the next unit
    }
  }

  // nullopt: the queue is closed. A pause gives back what the next pass would have used again.
  std::optional<Item> WaitForItem() {
    std::optional<Item> item = queue_.PopFor(options_.pause);
    if (item.has_value() || queue_.closed()) return item;
    FreeUnusedTensorMemory();
    return queue_.Pop();
  }

  // Takes commands and delivers reports while a step runs. A Reset waits for its end.
  void ApplyDuringStep() {
    ++progress_;
    bool has_news = false;
    while (!reset_.has_value()) {
      std::optional<Item> item = queue_.TryPop();
      if (!item.has_value()) break;
      has_news = true;
      if (std::holds_alternative<ResetItem>(*item)) {
        reset_ = std::get<ResetItem>(*item);
      } else {
        Apply(*std::move(item));
      }
    }
    Deliver(has_news);
  }

  std::optional<Item> NextItem() {
    if (reset_.has_value()) return *std::exchange(reset_, std::nullopt);
    return queue_.TryPop();
  }

  void Apply(Item item) {
    if (auto* reset = std::get_if<ResetItem>(&item)) {
      MakeCore(reset->generation);
    } else if (auto* done = std::get_if<VersionJobDone>(&item)) {
      core_->Apply(std::move(*done));
    } else if (auto* written = std::get_if<RecoveryJobDone>(&item)) {
      core_->Apply(std::move(*written));
    } else {
      core_->Apply(std::get<Command>(std::move(item)));
    }
  }

  // First the state, then what led to it: whoever gets a report finds its effect in State().
  void Deliver(bool has_news) {
    std::vector<ReportEvent> reports = core_->TakeReports();
    if (has_news || !reports.empty()) {
      std::vector<ModelState> models = core_->ModelStates();
      std::vector<std::string> version_ids = core_->VersionIds();
      absl::MutexLock lock(&mu_);
      state_.models = std::move(models);
      state_.version_ids = std::move(version_ids);
      state_.counters = Add(past_counters_, core_->counters());
      state_.kv_usage = core_->kv_usage();
      state_.version_usage = core_->version_usage();
    }
    for (ReportEvent& report : reports) listener_.on_report(std::move(report));
  }

  const ExecutorOptions options_;
  const ExecutorListener listener_;
  const std::function<void(absl::Status)> on_load_failed_;
  const absl::StatusOr<at::Device> device_;
  BoundedQueue<Item> queue_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<bool> is_busy_ = true;
  mutable absl::Mutex mu_;
  ExecutorState state_ ABSL_GUARDED_BY(mu_);

  // Executor thread only.
  RealClock clock_;
  std::optional<LoadedBase> base_;
  CheckpointWriter* writer_ = nullptr;
  VersionThread* versions_ = nullptr;
  RecoveryThread* recovery_ = nullptr;
  std::unique_ptr<ExecutorCore> core_;
  std::optional<ResetItem> reset_;  // came during a step
  ExecutorCounters past_counters_;  // of cores before the last Reset

  std::optional<NamedThread> thread_;
};

Executor::Executor(ExecutorOptions options, ExecutorListener listener,
                   std::function<void(absl::Status)> on_load_failed)
    : thread_(std::make_unique<Thread>(std::move(options), std::move(listener),
                                       std::move(on_load_failed))) {}

Executor::~Executor() { Stop(); }

void Executor::Start() { thread_->Start(); }
void Executor::Stop() { thread_->Stop(); }
absl::Status Executor::Submit(Command command) { return thread_->Submit(std::move(command)); }
void Executor::Reset(int64_t generation) { thread_->Reset(generation); }
ExecutorState Executor::State() const { return thread_->State(); }

}  // namespace lathe::worker
