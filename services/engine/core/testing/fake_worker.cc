#include "services/engine/core/testing/fake_worker.h"

#include "services/engine/ledger/gradient_window.h"

namespace lathe::engine {
namespace {

constexpr int64_t kSnapshotTime = 1'000'000;  // 1 ms

}  // namespace

void FakeWorker::Receive(const SendToWorker& message) {
  const bool forms = std::holds_alternative<FormGroup>(message.command);
  if (!forms && message.epoch != epoch_) return;
  if (forms) epoch_ = message.epoch;
  received_.push_back(message.command);
  std::visit([this](const auto& command) { Handle(command); }, message.command);
}

void FakeWorker::Handle(const FormGroup& command) {
  term_ = command.term;
  if (command.rendezvous) session = command.rendezvous->session;
  models_.clear();
  versions_.clear();
  queue_.clear();
  running_.clear();
  done_.clear();
  reports_.clear();
}

void FakeWorker::Handle(const AdoptGroup& command) {
  term_ = command.term;
  reports_.clear();
  for (const auto& [id, done] : done_) reports_.push_back(done);
}

void FakeWorker::Handle(const SendTrainBatch& command) {
  for (const SendTrainBatch::Item& item : command.items) {
    Queue(item.request_id, SendTrainBatch{{item}});
  }
}

void FakeWorker::Handle(const SendClearGradient& command) {
  const auto model = models_.find(command.model_id);
  if (model == models_.end()) return;
  model->second.window.clear();
  history_[command.model_id].push_back("clear");
}

void FakeWorker::Handle(const SendAck& command) {
  for (const std::string& id : command.request_ids) {
    done_.erase(id);
    acked_.insert(id);
  }
}

void FakeWorker::Handle(const SendDropAdapter& command) {
  if (command.request_id.empty()) {
    models_.erase(command.model_id);
  } else {
    Queue(command.request_id, command);
  }
}

void FakeWorker::Handle(const SendLoadVersion& command) {
  if (!loads_versions) return;
  if (!command.source_group.empty()) return LoadServed(command);
  const auto state = disk_.states.find(command.dir);
  versions_[command.version_id] =
      state != disk_.states.end() ? state->second.weights : disk_.versions[command.dir];
  published_at_[command.version_id] = command.inflight_seq_id;
  WorkerVersionLoaded loaded;
  loaded.group = group;
  loaded.epoch = epoch_;
  loaded.version_id = command.version_id;
  loaded.inflight_seq_id = command.inflight_seq_id;
  reports_.push_back(std::move(loaded));
}

void FakeWorker::LoadServed(const SendLoadVersion& command) {
  const auto served = disk_.served.find(command.version_id);
  if (is_cut_off || served == disk_.served.end() || served->second.first != command.source_seq_id) {
    reports_.push_back(WorkerVersionFailed{
        group, epoch_, command.version_id,
        ErrorInfo{absl::StatusCode::kUnavailable, "unavailable", "", "cut off"}});
    return;
  }
  versions_[command.version_id] = served->second.second;
  published_at_[command.version_id] = command.source_seq_id;
  reports_.push_back(
      WorkerVersionLoaded{group, epoch_, command.version_id, command.inflight_seq_id});
}

void FakeWorker::Handle(const SendServeVersion& command) {
  WorkerVersionServed served;
  served.group = group;
  served.epoch = epoch_;
  served.version_id = command.version_id;
  served.reader = command.reader;
  const auto version = versions_.find(command.version_id);
  if (version == versions_.end()) {
    served.error = ErrorInfo{absl::StatusCode::kNotFound, "no", "", "no such version"};
  } else {
    served.seq_id = published_at_[command.version_id];
    disk_.served[command.version_id] = {served.seq_id, version->second};
  }
  reports_.push_back(std::move(served));
}

void FakeWorker::Handle(const SendSaveVersion& command) {
  if (!writes_to_disk) return;
  WorkerVersionSaved saved;
  saved.group = group;
  saved.epoch = epoch_;
  saved.version_id = command.version_id;
  saved.dir = command.dir;
  const auto version = versions_.find(command.version_id);
  if (version == versions_.end()) {
    saved.error = ErrorInfo{absl::StatusCode::kNotFound, "no", "", "no such version"};
  } else {
    disk_.versions[command.dir] = version->second;
    saved.seq_id = published_at_[command.version_id];
  }
  reports_.push_back(std::move(saved));
}

void FakeWorker::Handle(const SendSnapshot& command) {
  queue_.push_back({"", command.model_id, 0, command});
}

void FakeWorker::Write(const SendSnapshot& command) {
  if (!writes_to_disk) return;
  WorkerSnapshotDone written;
  written.group = group;
  written.epoch = epoch_;
  written.snapshot_id = command.snapshot_id;
  const auto model = models_.find(command.model_id);
  if (model == models_.end()) {
    written.error = ErrorInfo{absl::StatusCode::kNotFound, "no", "", "no such model"};
  } else {
    disk_.states[command.snapshot_id] = model->second;
    written.model = {command.model_id,
                     model->second.applied_seq,
                     {model->second.window.begin(), model->second.window.end()}};
    written.write_time = kSnapshotTime;
  }
  reports_.push_back(std::move(written));
}

void FakeWorker::Restore(const std::string& dir, const std::string& model_id, WorkerDone& done) {
  const auto state = disk_.states.find(dir);
  if (state == disk_.states.end() || disk_.unreadable.count(dir) > 0) {
    done.error = ErrorInfo{absl::StatusCode::kDataLoss, "damaged", "", dir + " is damaged"};
    return;
  }
  models_[model_id] = state->second;
}

void FakeWorker::Queue(const std::string& request_id, WorkerCommand command) {
  if (running_.count(request_id) > 0) return;
  const auto known = done_.find(request_id);
  if (known != done_.end()) {
    reports_.push_back(known->second);
    return;
  }
  running_.insert(request_id);
  Work work{request_id, "", 0, std::move(command)};
  queue_.push_back(std::move(work));
}

void FakeWorker::RunOne() {
  const Work work = queue_.front();
  queue_.pop_front();
  if (const auto* snapshot = std::get_if<SendSnapshot>(&work.command)) return Write(*snapshot);
  running_.erase(work.request_id);
  WorkerDone done = Run(work);
  done_[work.request_id] = done;
  reports_.push_back(std::move(done));
}

void FakeWorker::RunOn(Held& model, const SendOptimStep& step, WorkerDone& done) {
  const std::vector<int64_t> window(model.window.begin(), model.window.end());
  if (step.expected_applied_seq != model.applied_seq || step.window != window) {
    ++num_refused_steps_;
    done.error =
        ErrorInfo{absl::StatusCode::kFailedPrecondition, "state_differs", "", "the window differs"};
    return;
  }
  history_[step.model_id].push_back("step " + std::to_string(step.seq_id) + " [" +
                                    EncodeSeqs(window) + "]");
  model.weights.push_back(history_[step.model_id].back());
  model.applied_seq = step.seq_id;
  model.window.clear();
}

bool FakeWorker::IsMissing(const std::string& model_id, WorkerDone& done) const {
  if (models_.count(model_id) > 0) return false;
  done.error = ErrorInfo{absl::StatusCode::kNotFound, "no_model", "", "no such model"};
  return true;
}

WorkerDone FakeWorker::Run(const Work& work) {
  WorkerDone done;
  done.group = group;
  done.epoch = epoch_;
  done.request_id = work.request_id;
  done.result_id = "result-" + work.request_id;
  std::string model_id;
  int64_t seq_id = 0;
  const auto fails = [&] {
    const auto it = failures_.find({model_id, seq_id});
    if (it == failures_.end()) return false;
    done.error = it->second;
    failures_.erase(it);
    return true;
  };
  if (const auto* batch = std::get_if<SendTrainBatch>(&work.command)) {
    const auto& [model, forward_only] = body_info.at(batch->items[0].body_id);
    model_id = model;
    seq_id = batch->items[0].seq_id;
    if (!fails() && !IsMissing(model_id, done) && !forward_only) {
      models_.at(model_id).window.insert(seq_id);
      history_[model_id].push_back("fb " + std::to_string(seq_id));
    }
  } else if (const auto* step = std::get_if<SendOptimStep>(&work.command)) {
    model_id = step->model_id;
    seq_id = step->seq_id;
    if (!fails() && !IsMissing(model_id, done)) RunOn(models_.at(model_id), *step, done);
  } else if (const auto* create = std::get_if<SendCreateAdapter>(&work.command)) {
    model_id = create->model_id;
    if (!fails()) models_[model_id] = {};
    done.lora = create->lora;
  } else if (const auto* load = std::get_if<SendLoadAdapter>(&work.command)) {
    model_id = load->model_id;
    seq_id = load->seq_id;
    if (!fails()) {
      Restore(load->dir, model_id, done);
      if (!done.error) models_[model_id] = {seq_id, {}, models_[model_id].weights};
    }
    if (const auto saved = saved_.find(load->dir); saved != saved_.end()) done.lora = saved->second;
  } else if (const auto* save = std::get_if<SendSaveCheckpoint>(&work.command)) {
    model_id = save->row.model_id;
    seq_id = save->seq_id;
    done.size_bytes = 100;
    done.manifest_sha256 = "sha";
    saved_[save->row.dir] = save->row.lora;
    if (!fails() && !IsMissing(model_id, done)) {
      history_[model_id].push_back("save " + save->row.dir);
      disk_.states[save->row.dir] = models_.at(model_id);
    }
  } else if (const auto* publish = std::get_if<SendPublishVersion>(&work.command)) {
    model_id = publish->model_id;
    seq_id = publish->seq_id;
    done.version_bytes = 100;
    if (!fails() && !IsMissing(model_id, done)) {
      versions_[publish->version_id] = models_.at(model_id).weights;
      published_at_[publish->version_id] = seq_id;
    }
  } else if (const auto* restore = std::get_if<SendRestoreAdapter>(&work.command)) {
    model_id = restore->model_id;
    Restore(restore->snapshot_id, model_id, done);
  } else if (const auto* drop = std::get_if<SendDropAdapter>(&work.command)) {
    models_.erase(drop->model_id);
  } else if (const auto* sample = std::get_if<SendSample>(&work.command)) {
    done.sampled_tokens = sample->max_tokens;
    done.cached_prompt_tokens = 1;
  }
  const auto held = models_.find(model_id);
  if (held != models_.end()) {
    done.model = HeldModel{model_id,
                           held->second.applied_seq,
                           {held->second.window.begin(), held->second.window.end()}};
  }
  return done;
}

std::vector<EventBody> FakeWorker::TakeReports() {
  std::vector<EventBody> reports;
  reports.swap(reports_);
  return reports;
}

WorkerAttached FakeWorker::Hello(bool ready) const {
  WorkerAttached hello;
  hello.group = group;
  hello.process_id = process_id_;
  hello.base_model = base_model_;
  hello.epoch = epoch_;
  hello.term = term_;
  hello.pid = pid;
  hello.is_supervised = is_supervised;
  hello.mesh = mesh;
  hello.role = role;
  hello.serves_versions = serves_versions;
  hello.session = session;
  hello.address = "10.0.0.1";
  hello.port = 4000;
  for (const auto& [id, held] : models_) {
    hello.models.push_back({id, held.applied_seq, {held.window.begin(), held.window.end()}});
  }
  for (const auto& [id, weights] : versions_) {
    const auto published = published_at_.find(id);
    hello.versions.push_back({id, published == published_at_.end() ? 0 : published->second});
  }
  hello.running_request_ids = {running_.begin(), running_.end()};
  if (ready) {
    BaseModelRow base;
    base.name = base_model_;
    base.max_context_length = 100;
    base.vocab_size = 1000;
    hello.ready = ReadyModel{.row = base, .kv_cache_tokens = kv_cache_tokens};
  }
  return hello;
}

void FakeWorker::FailOnce(const std::string& model_id, int64_t seq_id, ErrorInfo error) {
  failures_[{model_id, seq_id}] = std::move(error);
}

}  // namespace lathe::engine
