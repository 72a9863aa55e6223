// The effect of each operation on the counting adapter.
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/recovery.h"
#include "services/engine/simulation/sim_worker.h"
#include "services/engine/testing/mix.h"

namespace lathe::engine::simulation {
namespace {

void Fail(WorkerReport& report, const std::string& code, const std::string& message) {
  std::get<WorkerDone>(report.event).error =
      ErrorInfo{absl::StatusCode::kInternal, code, "", message};
  report.result.failed = true;
  report.result.code = code;
  report.result.message = message;
}

WorkerDone& DoneOf(WorkerReport& report) { return std::get<WorkerDone>(report.event); }

}  // namespace

// Returns true for at most one run of a request, and never for a recovery command.
bool SimWorker::IsSetBack(const std::string& request_id) {
  if (world_.swarm.setback == 0 || !ModelOfReplay(request_id).empty()) return false;
  return world_.random.Chance(world_.swarm.setback) && world_.set_back.insert(request_id).second;
}

void SimWorker::CheckRole(GroupRole other) const {
  if (role_ == other) throw Violation("I2", group_ + " was sent a command of another role");
}

void SimWorker::Run(const Work& work, WorkerReport& report) {
  const bool drops = std::holds_alternative<SendDropAdapter>(work.command);
  if (!drops) CheckRole(work.model_id.empty() ? GroupRole::kTrain : GroupRole::kSample);
  WorkerDone done;
  done.group = group_;
  done.request_id = work.request_id;
  report.event = std::move(done);
  std::visit([&](const auto& command) { Do(command, work, report); }, work.command);
  if (const CountingAdapter* const model = Find(work.model_id)) {
    DoneOf(report).model = HeldModel{work.model_id, model->applied_seq, SeqsOf(model->window)};
  }
}

void SimWorker::Do(const SendTrainBatch& command, const Work& work, WorkerReport& report) {
  const auto model = models_.find(work.model_id);
  if (model == models_.end()) return Fail(report, "absent", "the model is not on this worker");
  if (work.body->fails) return Fail(report, "bad_datum", "a datum is wrong");
  report.result.weights = HashOf(model->second.weights);
  if (work.body->forward_only) return;
  const int64_t seq = command.items.front().seq_id;
  // A gradient that is held already is reported again but not added again.
  const auto held = model->second.window.emplace(seq, work.body->content).first;
  if (held->second != work.body->content) {
    throw Violation("I2", absl::StrFormat("%s has another gradient of seq %d", work.model_id, seq));
  }
}

void SimWorker::Do(const SendOptimStep& command, const Work& work, WorkerReport& report) {
  const auto model = models_.find(work.model_id);
  if (model == models_.end()) return Fail(report, "absent", "the model is not on this worker");
  CountingAdapter& adapter = model->second;
  if (IsSetBack(command.request_id) && !adapter.window.empty()) {
    adapter.window.erase(std::prev(adapter.window.end()));
  }
  const std::vector<int64_t> window = SeqsOf(adapter.window);
  const bool matches =
      adapter.applied_seq == command.expected_applied_seq && window == command.window;
  if (!matches && world_.bug != SeededBug::kWindowNotCompared) {
    return Fail(
        report, "state_differs",
        absl::StrFormat("optim_step %d expects %d [%s], the worker holds %d [%s]", command.seq_id,
                        command.expected_applied_seq, absl::StrJoin(command.window, " "),
                        adapter.applied_seq, absl::StrJoin(window, " ")));
  }
  adapter.Step(command.seq_id, MixBytes(0, command.adam_params));
  report.result.weights = HashOf(adapter.weights);
}

void SimWorker::Do(const SendCreateAdapter& command, const Work& work, WorkerReport& report) {
  CountingAdapter adapter;
  adapter.weights = Lineage::Create(command.model_id, command.lora.seed);
  models_[work.model_id] = std::move(adapter);
  DoneOf(report).lora = command.lora;
}

void SimWorker::Do(const SendLoadAdapter& command, const Work& work, WorkerReport& report) {
  const CheckpointFiles* const files = world_.disk.Find(command.dir);
  if (files == nullptr) return Fail(report, "files_absent", command.dir + " is not there");
  CountingAdapter adapter;
  adapter.weights = files->weights;
  if (command.with_optimizer) adapter.moments = files->moments;
  adapter.applied_seq = command.seq_id;
  world_.loaded[work.request_id] = *files;
  models_[work.model_id] = std::move(adapter);
}

void SimWorker::Do(const SendDropAdapter&, const Work& work, WorkerReport&) {
  models_.erase(work.model_id);
}

void SimWorker::Do(const SendClearGradient&, const Work& work, WorkerReport&) {
  const auto model = models_.find(work.model_id);
  if (model != models_.end()) model->second.window.clear();
}

void SimWorker::Do(const SendSaveCheckpoint& command, const Work& work, WorkerReport& report) {
  const CountingAdapter* const model = Find(work.model_id);
  if (model == nullptr) return Fail(report, "absent", "the model is not on this worker");
  const bool fits =
      world_.disk.Write(command.row.dir, {model->weights, model->moments, model->applied_seq},
                        world_.store.IsNamed(command.row.dir));
  if (!fits) {
    throw Violation("I4", absl::StrFormat("%s is written again", command.row.dir));
  }
  DoneOf(report).size_bytes = 100;
  DoneOf(report).manifest_sha256 = "manifest of " + command.row.dir;
}

void SimWorker::Do(const SendPublishVersion& command, const Work& work, WorkerReport& report) {
  const CountingAdapter* const model = Find(work.model_id);
  if (model == nullptr) return Fail(report, "absent", "the model is not on this worker");
  versions_[command.version_id] = {model->weights, true, command.seq_id};
  DoneOf(report).version_bytes = 100;
}

void SimWorker::Do(const SendSample& command, const Work&, WorkerReport& report) {
  if (command.version_id.empty()) return;  // the base model
  const auto version = versions_.find(command.version_id);
  // A version that is being loaded was absent when the sample started.
  if (version == versions_.end() || !version->second.is_loaded) {
    return Fail(report, "version_absent",
                absl::StrFormat("version %s is not on this worker", command.version_id));
  }
  report.result.weights = HashOf(version->second.weights);
  DoneOf(report).sampled_tokens = command.max_tokens;
}

void SimWorker::WriteLater(const std::string& dir, CheckpointFiles files,
                           std::function<void()> then) {
  world_.time.After(
      world_.Delay(world_.swarm.max_snapshot),
      [this, dir, files = std::move(files), then = std::move(then), began = generation_] {
        if (is_dead_) return;
        if (!world_.disk.Write(dir, files, world_.store.IsNamed(dir))) {
          throw Violation("I4", dir + " is written again");
        }
        if (began == generation_) then();
      });
}

void SimWorker::Do(const SendSnapshot& command, const Work& work, WorkerReport&) {
  WorkerSnapshotDone done;
  done.group = group_;
  done.epoch = epoch_;
  done.snapshot_id = command.snapshot_id;
  const CountingAdapter* const model = Find(work.model_id);
  if (model == nullptr) {
    done.error = ErrorInfo{absl::StatusCode::kNotFound, "absent", "", "the model is not here"};
    return Report({.event = done, .result = {}});
  }
  done.model = HeldModel{work.model_id, model->applied_seq, SeqsOf(model->window)};
  done.size_bytes = 100;
  done.manifest_sha256 = "manifest of " + command.snapshot_id;
  done.write_time = kMillisecond;
  WriteLater(command.snapshot_id,
             {model->weights, model->moments, model->applied_seq, model->window},
             [this, done] { Report({.event = done, .result = {}}); });
}

void SimWorker::Do(const SendRestoreAdapter& command, const Work& work, WorkerReport& report) {
  const CheckpointFiles* const files = world_.disk.Find(command.snapshot_id);
  if (files == nullptr) return Fail(report, "files_absent", command.snapshot_id + " is not there");
  models_[work.model_id] = {files->weights, files->moments, files->applied_seq, files->window};
}

}  // namespace lathe::engine::simulation
