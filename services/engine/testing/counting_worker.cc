#include "services/engine/testing/counting_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine {
namespace {

constexpr int64_t kBytes = 100;               // size of anything written or published
constexpr int64_t kSnapshotTime = 1'000'000;  // 1 ms

void SetError(CountingWorker::Report& report, std::string code, std::string message,
              absl::StatusCode status = absl::StatusCode::kInternal) {
  std::get<WorkerDone>(report.event).error =
      ErrorInfo{status, std::move(code), "", std::move(message)};
}

ErrorInfo VersionAbsent() {
  return {absl::StatusCode::kNotFound, "version_absent", "", "is not here"};
}

HeldModel Held(const std::string& model_id, const CountingAdapter& model) {
  return {model_id, model.applied_seq, SeqsOf(model.window)};
}

WorkerDone& DoneOf(CountingWorker::Report& report) { return std::get<WorkerDone>(report.event); }

std::string ModelIdOf(const SendSaveCheckpoint& save) { return save.row.model_id; }
template <typename Command>
std::string ModelIdOf(const Command& command) {
  return command.model_id;
}

template <typename Command>
std::string RequestIdOf(const Command& command) {
  if constexpr (requires { command.request_id; }) return command.request_id;
  return "";
}

}  // namespace

CountingWorker::CountingWorker(std::string group, std::string process_id, std::string base_model,
                               const WorkerDisk& disk)
    : group_(std::move(group)),
      process_id_(std::move(process_id)),
      base_model_(std::move(base_model)),
      disk_(disk) {}

// ---- commands

bool CountingWorker::IsOutdated(const WorkerCommand& command) const {
  if (const auto* const form = std::get_if<FormGroup>(&command)) return form->term < term_;
  if (const auto* const adopt = std::get_if<AdoptGroup>(&command)) return adopt->term < term_;
  return false;
}

bool CountingWorker::IsOfEpoch(const SendToWorker& message) const {
  return message.epoch == epoch_ || std::holds_alternative<FormGroup>(message.command) ||
         std::holds_alternative<AdoptGroup>(message.command);
}

std::vector<Work> CountingWorker::Receive(const SendToWorker& message, const SharedBodies& bodies) {
  epoch_ = message.epoch;
  Works works;
  std::visit([&](const auto& command) { Take(command, bodies, works); }, message.command);
  return works;
}

void CountingWorker::Take(const FormGroup& command, const SharedBodies&, Works&) {
  term_ = command.term;
  ++generation_;
  models_.clear();
  versions_.clear();
  running_.clear();
  done_.clear();
  reports_.clear();
}

void CountingWorker::Take(const AdoptGroup& command, const SharedBodies&, Works&) {
  term_ = command.term;
  for (const auto& [id, done] : done_) Repeat(done);
}

bool CountingWorker::Begin(const std::string& request_id) {
  const auto done = done_.find(request_id);
  if (done != done_.end()) {
    Repeat(done->second);
    return false;
  }
  const auto [running, is_new] = running_.try_emplace(request_id, 0);
  if (!is_new && running->second > 0) ReportEnded(request_id, running->second);
  return is_new;
}

void CountingWorker::Take(const SendTrainBatch& command, const SharedBodies& bodies, Works& works) {
  for (const SendTrainBatch::Item& item : command.items) {
    if (!Begin(item.request_id)) continue;
    const SharedBody& body = bodies.at(item.body_id);
    works.push_back({item.request_id, body->model_id, SendTrainBatch{{item}}, body});
  }
}

void CountingWorker::Take(const SendSample& command, const SharedBodies& bodies, Works& works) {
  if (!Begin(command.request_id)) return;
  const auto body = bodies.find(command.body_id);
  works.push_back({command.request_id, "", command, body == bodies.end() ? nullptr : body->second});
}

template <typename Command>
void CountingWorker::Take(const Command& command, const SharedBodies&, Works& works) {
  const std::string request_id = RequestIdOf(command);
  if (!request_id.empty() && !Begin(request_id)) return;
  works.push_back({request_id, ModelIdOf(command), command, nullptr});
}

void CountingWorker::Take(const SendCancel& command, const SharedBodies&, Works&) {
  if (!IsRunning(command.request_id)) return;
  Fail({command.request_id, "", command, nullptr},
       {absl::StatusCode::kCancelled, "cancelled", "", "sample was cancelled"});
}

void CountingWorker::Take(const SendAck& command, const SharedBodies&, Works&) {
  for (const std::string& id : command.request_ids) done_.erase(id);
}

// ---- work on models

void CountingWorker::EndSequence(const std::string& request_id) {
  ReportEnded(request_id, ++running_.at(request_id));
}

void CountingWorker::ReportEnded(const std::string& request_id, int64_t num_ended) {
  Say(WorkerSampleProgress{group_, epoch_, {{request_id, num_ended}}});
}

void CountingWorker::Run(const Work& work) {
  Report report{.event = WorkerDone{group_, epoch_, work.request_id}};
  std::visit([&](const auto& command) { Do(command, work, report); }, work.command);
  if (!work.request_id.empty()) Finish(work, std::move(report));
}

void CountingWorker::Fail(const Work& work, ErrorInfo error) {
  Finish(work, {.event = WorkerDone{group_, epoch_, work.request_id, std::move(error)}});
}

void CountingWorker::Finish(const Work& work, Report report) {
  const CountingAdapter* const model = Find(work.model_id);
  if (model != nullptr) DoneOf(report).model = Held(work.model_id, *model);
  running_.erase(work.request_id);
  done_[work.request_id] = {.event = report.event, .weights = report.weights};
  reports_.push_back(std::move(report));
}

void CountingWorker::Say(EventBody event, std::optional<Write> write) {
  reports_.push_back({.event = std::move(event), .write = std::move(write)});
}

void CountingWorker::Repeat(const Report& done) {
  reports_.push_back(done);
  DoneOf(reports_.back()).epoch = epoch_;
}

CountingAdapter* CountingWorker::Need(const Work& work, Report& report) {
  CountingAdapter* const model = Find(work.model_id);
  if (model == nullptr) SetError(report, "absent", "the model is not on this worker");
  return model;
}

const CheckpointFiles* CountingWorker::Read(const std::string& dir, Report& report) const {
  const CheckpointFiles* const files = disk_.Find(dir);
  if (files == nullptr) SetError(report, "files_absent", dir + " is not there");
  if (!disk_.IsDamaged(dir)) return files;
  SetError(report, "damaged", dir + " is damaged", absl::StatusCode::kDataLoss);
  return nullptr;
}

void CountingWorker::Do(const SendTrainBatch& command, const Work& work, Report& report) {
  CountingAdapter* const model = Need(work, report);
  if (model == nullptr) return;
  if (work.body->fails) return SetError(report, "bad_datum", "a datum is wrong");
  report.weights = HashOf(model->weights);
  // A gradient that is held already is not added again.
  if (!work.body->forward_only) {
    model->window.emplace(command.items.front().seq_id, work.body->content);
  }
}

void CountingWorker::Do(const SendOptimStep& command, const Work& work, Report& report) {
  CountingAdapter* const model = Need(work, report);
  if (model == nullptr) return;
  const std::vector<int64_t> window = SeqsOf(model->window);
  if (command.expected_applied_seq != model->applied_seq || command.window != window) {
    return SetError(
        report, "state_differs",
        absl::StrFormat("optim_step %d expects %d [%s], the worker holds %d [%s]", command.seq_id,
                        command.expected_applied_seq, absl::StrJoin(command.window, " "),
                        model->applied_seq, absl::StrJoin(window, " ")));
  }
  model->Step(command.seq_id, MixBytes(0, command.adam_params));
  report.weights = HashOf(model->weights);
}

void CountingWorker::Do(const SendCreateAdapter& command, const Work& work, Report& report) {
  CountingAdapter model;
  model.weights = Lineage::Create(command.model_id, command.lora.seed);
  models_[work.model_id] = std::move(model);
  DoneOf(report).lora = command.lora;
}

void CountingWorker::Do(const SendLoadAdapter& command, const Work& work, Report& report) {
  const CheckpointFiles* const files = Read(command.dir, report);
  if (files == nullptr) return;
  CountingAdapter model;
  model.weights = files->weights;
  if (command.with_optimizer) model.moments = files->moments;
  model.applied_seq = command.seq_id;
  models_[work.model_id] = std::move(model);
}

void CountingWorker::Do(const SendRestoreAdapter& command, const Work& work, Report& report) {
  const CheckpointFiles* const files = Read(command.snapshot_id, report);
  if (files == nullptr) return;
  models_[work.model_id] = {files->weights, files->moments, files->applied_seq, files->window};
}

void CountingWorker::Do(const SendDropAdapter&, const Work& work, Report&) {
  models_.erase(work.model_id);
}

void CountingWorker::Do(const SendClearGradient&, const Work& work, Report&) {
  CountingAdapter* const model = Find(work.model_id);
  if (model != nullptr) model->window.clear();
}

void CountingWorker::Do(const SendSaveCheckpoint& command, const Work& work, Report& report) {
  const CountingAdapter* const model = Need(work, report);
  if (model == nullptr) return;
  report.write = {command.row.dir, {model->weights, model->moments, model->applied_seq}};
  DoneOf(report).size_bytes = kBytes;
  DoneOf(report).manifest_sha256 = "manifest of " + command.row.dir;
}

void CountingWorker::Do(const SendSnapshot& command, const Work& work, Report&) {
  const CountingAdapter* const model = Find(work.model_id);
  WorkerSnapshotDone done{group_, epoch_, command.snapshot_id};
  if (model == nullptr) {
    done.error = ErrorInfo{absl::StatusCode::kNotFound, "absent", "", "the model is not here"};
    return Say(std::move(done));
  }
  done.model = Held(work.model_id, *model);
  done.size_bytes = kBytes;
  done.manifest_sha256 = "manifest of " + command.snapshot_id;
  done.write_time = kSnapshotTime;
  Say(std::move(done), Write{command.snapshot_id,
                             {model->weights, model->moments, model->applied_seq, model->window}});
}

void CountingWorker::Do(const SendPublishVersion& command, const Work& work, Report& report) {
  const CountingAdapter* const model = Need(work, report);
  if (model == nullptr) return;
  versions_[command.version_id] = {model->weights, true, command.seq_id};
  DoneOf(report).version_bytes = kBytes;
}

// ---- versions

void CountingWorker::Start(Work& work) const {
  const auto* const sample = work.As<SendSample>();
  if (sample == nullptr) return;
  if (const Version* const version = FindLoaded(sample->version_id))
    work.weights = version->weights;
}

void CountingWorker::Do(const SendSample& command, const Work& work, Report& report) {
  if (command.version_id.empty()) return;  // the base model
  if (work.weights == nullptr) {
    return SetError(report, "version_absent",
                    absl::StrFormat("version %s is not on this worker", command.version_id));
  }
  report.weights = HashOf(work.weights);
  DoneOf(report).sampled_tokens = command.max_tokens;
}

void CountingWorker::Take(const SendLoadVersion& command, const SharedBodies&, Works& works) {
  const auto known = versions_.find(command.version_id);
  if (known != versions_.end() && known->second.seq_id >= command.inflight_seq_id) {
    if (known->second.is_loaded) ReportLoaded(command);
    return;
  }
  versions_[command.version_id] = {{}, false, command.inflight_seq_id};
  works.push_back({"", "", command, nullptr});
}

bool CountingWorker::AwaitsLoad(const SendLoadVersion& load) const {
  const auto version = versions_.find(load.version_id);
  return version != versions_.end() && !version->second.is_loaded &&
         version->second.seq_id == load.inflight_seq_id;
}

void CountingWorker::EndLoad(const SendLoadVersion& load, std::optional<Weights> weights,
                             ErrorInfo error) {
  if (weights) {
    versions_[load.version_id] = {*std::move(weights), true,
                                  std::max(load.inflight_seq_id, load.source_seq_id)};
    ReportLoaded(load);
  } else {
    versions_.erase(load.version_id);
    Say(WorkerVersionFailed{group_, epoch_, load.version_id, std::move(error)});
  }
}

void CountingWorker::ReportLoaded(const SendLoadVersion& command) {
  Say(WorkerVersionLoaded{group_, epoch_, command.version_id, command.inflight_seq_id});
}

void CountingWorker::LoseVersion(const std::string& version_id) {
  EndLoad({.version_id = version_id}, std::nullopt);
}

void CountingWorker::Take(const SendDropVersion& command, const SharedBodies&, Works&) {
  versions_.erase(command.version_id);
}

void CountingWorker::Take(const SendServeVersion& command, const SharedBodies&, Works&) {
  const Version* const version = FindLoaded(command.version_id);
  WorkerVersionServed served{group_, epoch_, command.version_id, command.reader};
  if (version == nullptr) served.error = VersionAbsent();
  if (version != nullptr) served.seq_id = version->seq_id;
  Say(std::move(served));
}

void CountingWorker::Take(const SendSaveVersion& command, const SharedBodies&, Works&) {
  const Version* const version = FindLoaded(command.version_id);
  WorkerVersionSaved saved{group_, epoch_, command.version_id, command.dir};
  if (version == nullptr) {
    saved.error = VersionAbsent();
    return Say(std::move(saved));
  }
  saved.seq_id = version->seq_id;
  saved.size_bytes = kBytes;
  saved.manifest_sha256 = "manifest of " + command.dir;
  Say(std::move(saved), Write{command.dir, {.weights = version->weights}});
}

// ---- state

std::vector<CountingWorker::Report> CountingWorker::TakeReports() {
  return std::exchange(reports_, {});
}

CountingAdapter* CountingWorker::Find(const std::string& model_id) {
  const auto it = models_.find(model_id);
  return it == models_.end() ? nullptr : &it->second;
}

const CountingAdapter* CountingWorker::Find(const std::string& model_id) const {
  const auto it = models_.find(model_id);
  return it == models_.end() ? nullptr : &it->second;
}

const CountingWorker::Version* CountingWorker::FindLoaded(const std::string& version_id) const {
  const auto it = versions_.find(version_id);
  return it == versions_.end() || !it->second.is_loaded ? nullptr : &it->second;
}

WorkerAttached CountingWorker::Hello() const {
  WorkerAttached hello{.group = group_, .process_id = process_id_};
  hello.epoch = epoch_;
  hello.base_model = base_model_;
  hello.term = term_;
  for (const auto& [id, model] : models_) hello.models.push_back(Held(id, model));
  for (const auto& [id, version] : versions_) {
    hello.versions.push_back({id, version.seq_id, !version.is_loaded});
  }
  for (const auto& [id, num_ended] : running_) hello.running_request_ids.push_back(id);
  return hello;
}

ReadyModel CountingWorker::Ready(int64_t kv_cache_tokens, int64_t max_running_samples) const {
  ReadyModel ready{
      .row = {}, .kv_cache_tokens = kv_cache_tokens, .max_running_samples = max_running_samples};
  ready.row.name = base_model_;
  ready.row.max_context_length = 100;
  ready.row.vocab_size = 1000;
  return ready;
}

std::string CountingWorker::DescribeHeld() const {
  const auto count = [](const auto& held, const char* what) {
    return held.empty() ? "" : absl::StrFormat("%d %s", held.size(), what);
  };
  for (const std::string& held :
       {count(models_, "models"), count(versions_, "sampler versions"),
        count(running_, "running requests"), count(done_, "results that were not acknowledged")}) {
    if (!held.empty()) return held;
  }
  return "";
}

}  // namespace lathe::engine
