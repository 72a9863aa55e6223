#include "services/engine/core/testing/fake_worker.h"

#include <stdexcept>
#include <type_traits>

namespace lathe::engine {
namespace {

// Seq under which FailOnce knows a command; -1: it never fails.
int64_t SeqOf(const WorkerCommand& any) {
  return std::visit(
      [](const auto& command) -> int64_t {
        if constexpr (std::is_same_v<decltype(command), const SendCreateAdapter&>) return 0;
        if constexpr (std::is_same_v<decltype(command), const SendRestoreAdapter&>) return 0;
        if constexpr (requires { command.items; }) return command.items.front().seq_id;
        if constexpr (requires { command.seq_id; }) return command.seq_id;
        return -1;
      },
      any);
}

}  // namespace

void FakeWorker::Receive(const SendToWorker& message) {
  if (worker_.IsOutdated(message.command) || !worker_.IsOfEpoch(message)) return;
  received_.push_back(message.command);
  if (const auto* const form = std::get_if<FormGroup>(&message.command)) {
    if (form->rendezvous) session = form->rendezvous->session;
    queue_.clear();
    reports_.clear();
  } else if (std::holds_alternative<AdoptGroup>(message.command)) {
    reports_.clear();
  } else if (const auto* const ack = std::get_if<SendAck>(&message.command)) {
    acked_.insert(ack->request_ids.begin(), ack->request_ids.end());
  }
  if (!Answers(message.command)) return;
  for (Work& work : worker_.Receive(message, disk_.bodies)) {
    if (const auto* const load = work.As<SendLoadVersion>()) {
      Load(*load);
    } else {
      queue_.push_back(std::move(work));
    }
  }
  Collect();
}

bool FakeWorker::Answers(const WorkerCommand& command) const {
  if (std::holds_alternative<SendLoadVersion>(command)) return loads_versions;
  const bool writes = std::holds_alternative<SendSaveVersion>(command) ||
                      std::holds_alternative<SendSnapshot>(command);
  return writes_to_disk || !writes;
}

void FakeWorker::Load(const SendLoadVersion& load) {
  if (load.source_group.empty()) {
    const CheckpointFiles* const files = disk_.Find(load.dir);
    if (files == nullptr) throw std::logic_error(load.dir + " is not there");
    return worker_.EndLoad(load, files->weights);
  }
  const auto served = disk_.served.find(load.version_id);
  if (is_cut_off || served == disk_.served.end() || served->second.first != load.source_seq_id) {
    return worker_.EndLoad(load, std::nullopt,
                           {absl::StatusCode::kUnavailable, "unavailable", "", "cut off"});
  }
  worker_.EndLoad(load, served->second.second);
}

void FakeWorker::RunOne() {
  Work work = std::move(queue_.front());
  queue_.pop_front();
  worker_.Start(work);
  // A sample may have been cancelled meanwhile.
  if (!work.request_id.empty() && !worker_.IsRunning(work.request_id)) return;
  if (!Answers(work.command)) return;
  const auto failure = failures_.find({work.model_id, SeqOf(work.command)});
  const bool fails = failure != failures_.end();
  if (fails) {
    worker_.Fail(work, failure->second);
    failures_.erase(failure);
  } else {
    worker_.Run(work);
  }
  Collect();
  WorkerDone* const done =
      work.request_id.empty() ? nullptr : &std::get<WorkerDone>(reports_.back());
  if (const auto* const load = work.As<SendLoadAdapter>()) done->lora = disk_.loras[load->dir];
  if (done == nullptr || !done->error) {
    AddToHistory(work);
  } else if (!fails && done->error->code == "state_differs") {
    ++num_refused_steps_;
  }
}

void FakeWorker::AddToHistory(const Work& work) {
  std::vector<std::string>& history = history_[work.model_id];
  if (work.As<SendTrainBatch>() != nullptr && !work.body->forward_only) {
    history.push_back("fb " + std::to_string(SeqOf(work.command)));
  } else if (work.As<SendOptimStep>() != nullptr) {
    history.push_back(Weights(work.model_id).back());
  } else if (work.As<SendClearGradient>() != nullptr && Holds(work.model_id)) {
    history.push_back("clear");
  } else if (const auto* const save = work.As<SendSaveCheckpoint>()) {
    history.push_back("save " + save->row.dir);
    disk_.loras[save->row.dir] = save->row.lora;
  }
}

void FakeWorker::Collect() {
  for (CountingWorker::Report& report : worker_.TakeReports()) {
    if (report.write) disk_.Write(report.write->dir, report.write->files, /*is_named=*/false);
    if (auto* const done = std::get_if<WorkerDone>(&report.event)) {
      done->result_id = "result-" + done->request_id;
      done->cached_prompt_tokens = done->sampled_tokens > 0 ? 1 : 0;
    } else if (const auto* const served = std::get_if<WorkerVersionServed>(&report.event)) {
      const CountingWorker::Version* const version = worker_.FindLoaded(served->version_id);
      if (!served->error) disk_.served[served->version_id] = {served->seq_id, version->weights};
    }
    reports_.push_back(std::move(report.event));
  }
}

EventBody FakeWorker::LoseVersion(const std::string& version_id) {
  worker_.LoseVersion(version_id);
  return worker_.TakeReports().back().event;
}

std::vector<std::string> FakeWorker::StepsOf(const engine::Weights& weights) {
  std::vector<std::string> words = weights->Words();
  words.erase(words.begin());  // the creation
  return words;
}

WorkerAttached FakeWorker::Hello(bool ready) const {
  WorkerAttached hello = worker_.Hello();
  hello.pid = pid;
  hello.is_supervised = is_supervised;
  hello.mesh = mesh;
  hello.role = role;
  hello.serves_versions = serves_versions;
  hello.session = session;
  hello.address = "10.0.0.1";
  hello.port = 4000;
  if (!ready) return hello;
  hello.ready = worker_.Ready(kv_cache_tokens, max_running_samples);
  hello.ready->row.lora_modules = lora_modules;
  return hello;
}

}  // namespace lathe::engine
