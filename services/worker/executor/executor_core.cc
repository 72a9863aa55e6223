#include "services/worker/executor/executor_core.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"
#include "services/worker/layers/yield_points.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

ExecutorCore::ExecutorCore(const ExecutorParts& parts, const CoreOptions& options,
                           int64_t generation)
    : parts_(parts),
      generation_(generation),
      versions_(parts.version_jobs, generation),
      model_ops_(parts.model, parts.store, parts.writer, parts.recovery_jobs, adapters_, versions_,
                 generation, options.model_ops),
      trainer_(parts.model, adapters_, options.trainer, options.model_ops.ranks.data),
      sampling_(parts.model, options.sampling, parts.tokenizer, options.replica),
      time_share_(options.sampling_share),
      meter_(parts.device_clock, time_share_, counters_) {}

void ExecutorCore::Apply(Command command) {
  std::visit([this](auto&& alternative) { Do(std::forward<decltype(alternative)>(alternative)); },
             std::move(command));
}

template <typename Barrier>
void ExecutorCore::Do(Barrier barrier) {
  if constexpr (std::is_same_v<Barrier, PublishVersion>) {
    // An inflight version that is already here needs no wait: its samples run on the weights it
    // has.
    if (!versions_.Has(barrier.version_id)) pending_versions_.insert(barrier.version_id);
  }
  lanes_.Push(ModelLanes::Barrier(std::move(barrier)));
}

void ExecutorCore::Do(TrainBatch batch) {
  for (TrainRequest& request : batch.requests) lanes_.Push(std::move(request));
}

void ExecutorCore::Do(SampleRequest request) {
  if (pending_versions_.contains(request.version_id)) {
    Defer(std::move(request));
    return;
  }
  const absl::StatusOr<bool> is_here = versions_.Fetch(request.version_id);
  if (!is_here.ok()) {
    Emit(OpFailed{request.request_id, is_here.status()});
  } else if (*is_here) {
    AddSample(std::move(request));
  } else {
    Defer(std::move(request));
  }
}

void ExecutorCore::Defer(SampleRequest request) {
  const std::string version_id = request.version_id;
  deferred_samples_[version_id].push_back(std::move(request));
}

void ExecutorCore::Apply(RecoveryJobDone done) {
  if (done.generation != generation_) return;
  if (const auto* snapshot = std::get_if<SnapshotDone>(&done.report)) {
    Count(*snapshot);
    model_ops_.GiveBack(std::move(done.buffer));
    if (std::optional<Snapshot> next = model_ops_.NextSnapshot()) Do(*std::move(next));
  } else {
    versions_.FinishSave(done);
  }
  std::visit([this](auto&& report) { Emit(std::forward<decltype(report)>(report)); },
             std::move(done.report));
}

// Training is never cancelled, because its seq_id has its place in the model's order.
void ExecutorCore::Do(const Cancel& command) {
  for (auto& [version_id, samples] : deferred_samples_) {
    const auto deferred = std::find_if(
        samples.begin(), samples.end(),
        [&](const SampleRequest& request) { return request.request_id == command.request_id; });
    if (deferred == samples.end()) continue;
    samples.erase(deferred);
    Emit(OpFailed{command.request_id, absl::CancelledError("sample was cancelled")});
    return;
  }
  if (!running_samples_.contains(command.request_id)) return;
  EndSample(command.request_id);
  sampling_.Cancel(command.request_id);
  Emit(OpFailed{command.request_id, absl::CancelledError("sample was cancelled")});
}

void ExecutorCore::Do(const StreamSample& command) {
  for (auto& [version_id, samples] : deferred_samples_) {
    for (SampleRequest& request : samples) {
      if (request.request_id == command.request_id) request.streamed = true;
    }
  }
  sampling_.Stream(command.request_id);
}

bool ExecutorCore::RunUnit(const std::function<void()>& on_yield) {
  bool did_something = RunBarriers(on_yield);
  did_something |= BeginTrains(on_yield);
  versions_.Fit(model_ops_.VersionBytes());
  LearnWhatTrainingTook();
  const DeviceUse use = time_share_.Pick(trainer_.HasWork(), sampling_.HasWork(), preferred_);
  if (use == DeviceUse::kNothing) {
    meter_.Finish();
    return did_something;
  }
  if (use == DeviceUse::kTraining) {
    RunWithYieldPoints(on_yield, [this] { trainer_.RunUnit(); });
    CollectTrains();
  } else {
    RunSamplingPass();
  }
  return true;
}

bool ExecutorCore::RunUnit(DeviceUse preferred, const std::function<void()>& on_yield) {
  preferred_ = preferred;
  const bool did_something = RunUnit(on_yield);
  preferred_.reset();
  return did_something;
}

DeviceUse ExecutorCore::preferred_use() {
  LearnWhatTrainingTook();
  return time_share_.Preferred();
}

void ExecutorCore::LearnWhatTrainingTook() {
  const bool competes = trainer_.HasWork() && sampling_.HasWork();
  if (competes && time_share_.Preferred() == DeviceUse::kTraining) meter_.Finish();
}

// A step of a long sequence takes seconds on a CPU. Samples do not wait for its end.
void ExecutorCore::RunWithYieldPoints(const std::function<void()>& on_yield,
                                      const std::function<void()>& work) {
  meter_.Begin(DeviceUse::kTraining);
  {
    const YieldScope yield_scope([&] {
      if (on_yield) on_yield();
      if (preferred_.has_value()) return;  // yield points differ between ranks
      versions_.Fit(model_ops_.VersionBytes());
      meter_.End();
      while (time_share_.Pick(/*has_training=*/true, sampling_.HasWork()) == DeviceUse::kSampling) {
        RunSamplingPass();
        if (on_yield) on_yield();
      }
      meter_.Begin(DeviceUse::kTraining);
    });
    work();
  }
  meter_.End();
}

bool ExecutorCore::RunBarriers(const std::function<void()>& on_yield) {
  bool ran = false;
  const auto may_run = [this](const ModelLanes::Barrier& barrier) {
    return model_ops_.MayRun(barrier);
  };
  while (const std::optional<ModelLanes::Barrier> barrier = lanes_.TakeBarrier(may_run)) {
    ran = true;
    if (std::holds_alternative<Snapshot>(*barrier) ||
        std::holds_alternative<SaveCheckpoint>(*barrier)) {
      RunWithYieldPoints(on_yield, [&] { RunBarrier(*barrier); });
    } else {
      RunBarrier(*barrier);
    }
    // A store that is away holds up each read of a checkpoint for seconds. The work of other models
    // comes in between.
    const bool reads_checkpoint = std::holds_alternative<RestoreAdapter>(*barrier) ||
                                  std::holds_alternative<LoadAdapter>(*barrier);
    if (reads_checkpoint) break;
  }
  return ran;
}

void ExecutorCore::RunBarrier(const ModelLanes::Barrier& barrier) {
  std::optional<Report> report = model_ops_.Run(barrier);
  const bool ok = !report.has_value() || !std::holds_alternative<OpFailed>(*report);
  if (report.has_value()) {
    if (const auto* snapshot = std::get_if<SnapshotDone>(&*report)) Count(*snapshot);
    Emit(*std::move(report), ModelIdOf(barrier));
  }
  AfterBarrier(barrier, ok);
}

void ExecutorCore::Count(const SnapshotDone& done) {
  if (done.status.ok()) {
    ++counters_.snapshots;
    counters_.snapshot_time += done.write_time;
    return;
  }
  ++counters_.snapshot_failures;
  LogWarn("a snapshot of a model failed",
          {{"model_id", done.state.model_id}, {"error", done.status.message()}});
}

void ExecutorCore::AfterBarrier(const ModelLanes::Barrier& barrier, bool ok) {
  const std::string& model_id = ModelIdOf(barrier);
  const std::optional<ModelState> state = StateOf(adapters_, model_id);
  const bool is_restored = std::holds_alternative<RestoreAdapter>(barrier);
  if (!state.has_value() || state->window.empty() || is_restored) window_outputs_.erase(model_id);
  if (ok && std::holds_alternative<OptimStep>(barrier)) ++counters_.optim_steps;
  if (const auto* publish = std::get_if<PublishVersion>(&barrier)) {
    if (ok && publish->is_inflight) MoveSamples(publish->version_id);
    pending_versions_.erase(publish->version_id);
    ReleaseDeferredSamples(publish->version_id);
    ResumeDeferredCopies();
  }
  if (std::holds_alternative<Snapshot>(barrier)) {
    // A failed snapshot has left its buffer to the next one.
    if (std::optional<Snapshot> next = model_ops_.NextSnapshot()) Do(*std::move(next));
  }
}

// All ready requests share the next passes with those already running.
bool ExecutorCore::BeginTrains(const std::function<void()>& on_yield) {
  TrainBatch batch;
  Started started;
  std::vector<TrainRequest> requests = lanes_.TakeTrains();
  for (TrainRequest& request : requests) {
    if (AnswerAtOnce(request)) {
      lanes_.EndTrain(request.model_id);
      continue;
    }
    // A restored window has no outputs. They are computed again without adding to the gradient.
    if (IsInWindow(request)) request.forward_only = true;
    running_trains_[request.request_id] = {request.model_id, request.seq_id, request.forward_only};
    if (!request.forward_only) {
      running_seqs_[{request.model_id, request.seq_id}] = request.request_id;
    }
    started.request_ids.push_back(request.request_id);
    batch.requests.push_back(std::move(request));
  }
  if (!batch.requests.empty()) {
    Emit(std::move(started));
    // Reported before they run. If one of them ends this process, the engine knows which ones ran.
    if (on_yield) on_yield();
    for (const TrainRequest& request : batch.requests) {
      FailPoint("worker.train.begin", static_cast<int64_t>(request.data.size()));
    }
    trainer_.Begin(std::move(batch));
  }
  // A barrier may have waited for requests that were answered at once.
  return !requests.empty();
}

// A forward_backward that is in the accumulator, or is being added, is never added again.
bool ExecutorCore::AnswerAtOnce(const TrainRequest& request) {
  if (adapters_.Find(request.model_id) == nullptr) {
    Emit(OpFailed{request.request_id, absl::NotFoundError(absl::StrFormat(
                                          "model %s is not on this worker", request.model_id))});
    return true;
  }
  if (request.forward_only) return false;
  if (const auto running = running_seqs_.find({request.model_id, request.seq_id});
      running != running_seqs_.end()) {
    Emit(OpFailed{request.request_id, absl::FailedPreconditionError(absl::StrFormat(
                                          "seq_id %d of model %s is running as request %s",
                                          request.seq_id, request.model_id, running->second))},
         request.model_id);
    return true;
  }
  const auto outputs = window_outputs_.find(request.model_id);
  if (outputs == window_outputs_.end()) return false;
  const auto output = outputs->second.find(request.seq_id);
  if (output == outputs->second.end()) return false;
  Emit(TrainDone{request.request_id, output->second}, request.model_id);
  return true;
}

bool ExecutorCore::IsInWindow(const TrainRequest& request) const {
  return !request.forward_only && adapters_.Find(request.model_id)->window.contains(request.seq_id);
}

void ExecutorCore::CollectTrains() {
  for (FinishedRequest& finished : trainer_.TakeFinished()) {
    const auto it = running_trains_.find(finished.request_id);
    const RunningTrain train = it->second;
    running_trains_.erase(it);
    if (!train.forward_only) running_seqs_.erase({train.model_id, train.seq_id});
    if (!finished.output.ok()) {
      Emit(OpFailed{finished.request_id, finished.output.status()}, train.model_id);
    } else {
      if (!train.forward_only) {
        window_outputs_[train.model_id][train.seq_id] = *finished.output;
        FailPoint("worker.train.added");
      }
      Emit(TrainDone{finished.request_id, *std::move(finished.output)}, train.model_id);
    }
    lanes_.EndTrain(train.model_id);
  }
}

void ExecutorCore::AddSample(SampleRequest request) {
  absl::StatusOr<SamplerVersion> version = versions_.Find(request.version_id);
  if (!version.ok()) {
    Emit(OpFailed{request.request_id, version.status()});
    return;
  }
  const std::string request_id = request.request_id;
  const std::string version_id = request.version_id;
  const absl::Status added = Guarded("sample", [&] {
    return sampling_.Add(std::move(request), version->weights, version->inflight_seq);
  });
  if (!added.ok()) {
    Emit(OpFailed{request_id, added});
    return;
  }
  running_samples_[request_id] = version_id;
  versions_.Hold(version_id);
  Emit(Started{{request_id}});
}

void ExecutorCore::ReleaseDeferredSamples(const std::string& version_id) {
  const auto it = deferred_samples_.find(version_id);
  if (it == deferred_samples_.end()) return;
  std::vector<SampleRequest> samples = std::move(it->second);
  deferred_samples_.erase(it);
  for (SampleRequest& request : samples) Do(std::move(request));
}

void ExecutorCore::RunSamplingPass() {
  meter_.Begin(DeviceUse::kSampling);
  FailPoint("worker.decode.pass");
  sampling_.RunPass();
  CollectSamples();
  meter_.End();
}

void ExecutorCore::CollectSamples() {
  SampleProgress progress{.tokens = sampling_.TakeStreamed(), .ended = sampling_.TakeEnded()};
  if (!progress.tokens.empty() || !progress.ended.empty()) Emit(std::move(progress));
  for (FinishedSample& finished : sampling_.TakeFinished()) {
    EndSample(finished.request_id);
    if (finished.output.ok()) {
      Emit(SampleDone{finished.request_id, *std::move(finished.output)});
    } else {
      Emit(OpFailed{finished.request_id, finished.output.status()});
    }
  }
}

void ExecutorCore::EndSample(const std::string& request_id) {
  const auto it = running_samples_.find(request_id);
  versions_.Release(it->second);
  running_samples_.erase(it);
}

void ExecutorCore::Emit(Report report, const std::string& model_id) {
  reports_.push_back({.generation = generation_,
                      .report = std::move(report),
                      .model = StateOf(adapters_, model_id)});
}

std::vector<ModelState> ExecutorCore::ModelStates() const {
  std::vector<ModelState> states;
  for (const auto& [model_id, adapter] : adapters_.adapters()) {
    states.push_back(*StateOf(adapters_, model_id));
  }
  return states;
}

MemoryInUse ExecutorCore::memory_in_use() const {
  const KvUsage kv = sampling_.own_kv_usage();
  // On devices other than a CPU, the whole cache is allocated when the first token is written.
  int64_t num_blocks = kv.num_used + kv.num_idle;
  if (!parts_.model.device().is_cpu() && num_blocks > 0) num_blocks = kv.num_blocks;
  const int64_t bytes_per_token =
      KvCache::BytesPerToken(parts_.model.part().local, parts_.model.attention_arithmetic());
  return {.adapters = model_ops_.AdapterBytes(),
          .versions = versions_.NumBytes(),
          .staging = model_ops_.StagedBytes(),
          .saves = model_ops_.SaveBytes(),
          .kv_cache = num_blocks * KvCache::kBlockTokens * bytes_per_token};
}

}  // namespace lathe::worker
