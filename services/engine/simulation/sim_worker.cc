#include "services/engine/simulation/sim_worker.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"

namespace lathe::engine::simulation {

SimWorker::SimWorker(World& world, std::string group, GroupRole role, int64_t rank,
                     std::function<SimEngine*()> find_engine,
                     std::function<void(LossCause cause)> on_death)
    : world_(world),
      group_(std::move(group)),
      role_(role),
      rank_(rank),
      pid_(++world.last_process),
      process_id_(absl::StrFormat("worker%d", pid_)),
      find_engine_(std::move(find_engine)),
      on_death_(std::move(on_death)) {
  Dial();
  if (world.swarm.num_ranks == 1) Load();
}

void SimWorker::Load() {
  world_.time.After(world_.Delay(2 * kSecond), [this] { BecomeReady(); });
}

void SimWorker::BecomeReady() {
  if (is_dead_ || !HasPeers()) return;
  const int64_t wait = HeldUpUntil() - world_.time.now();
  if (wait > 0) return world_.time.After(wait, [this] { BecomeReady(); });
  is_ready_ = true;
  Report({.event = WorkerReady{group_, Ready()}, .result = {}});
}

ReadyModel SimWorker::Ready() const {
  ReadyModel ready;
  ready.row.name = "base";
  ready.row.max_context_length = 100;
  ready.row.vocab_size = 1000;
  ready.kv_cache_tokens = 1000;
  return ready;
}

// ---- connection

void SimWorker::Dial() {
  if (is_dead_ || link_ != nullptr) return;
  if (is_hung()) return world_.time.After(hung_until_ - world_.time.now(), [this] { Dial(); });
  SimEngine* const engine = find_engine_();
  if (engine == nullptr) {
    world_.time.After(world_.Delay(2 * kSecond), [this] { Dial(); });
  } else {
    Connect(engine);
  }
}

void SimWorker::Connect(SimEngine* engine) {
  link_ = std::make_shared<Link>();
  link_->engine = engine;
  link_->worker = this;
  link_->group = group_;
  link_->rank = rank_;
  if (rank_ == 0) world_.sources[group_] = this;
  world_.time.After(ArrivalAfter(world_, link_->last_to_engine), [link = link_, hello = Hello()] {
    link->engine->OnHello(link, hello);
    // The end of a stream must not overtake its start.
    if (!link->open_at_worker) link->engine->OnClosed(link);
  });
  // A worker that is not ready dials again if the engine does not attach it in time.
  if (is_ready_) return;
  world_.time.After(kSilence, [this, link = link_] {
    if (link == link_ && !is_attached_) Reconnect();
  });
}

WorkerAttached SimWorker::Hello() const {
  WorkerAttached hello;
  hello.group = group_;
  hello.process_id = process_id_;
  hello.base_model = "base";
  hello.epoch = epoch_;
  hello.term = term_;
  for (const auto& [id, model] : models_) {
    hello.models.push_back({id, model.applied_seq, SeqsOf(model.window)});
  }
  for (const auto& [id, version] : versions_) {
    hello.versions.push_back({id, version.seq_id, !version.is_loaded});
  }
  hello.running_request_ids = {running_.begin(), running_.end()};
  if (is_ready_) hello.ready = Ready();
  hello.pid = pid_;
  hello.is_supervised = world_.swarm.is_supervised;
  hello.rank = rank_;
  hello.mesh.tp = world_.swarm.num_ranks;
  hello.session = session_;
  hello.address = process_id_;
  hello.role = role_;
  hello.serves_versions = role_ == GroupRole::kTrain && world_.swarm.serves_versions;
  return hello;
}

void SimWorker::Reconnect() {
  if (is_dead_ || link_ == nullptr) return;
  const std::shared_ptr<Link> link = std::exchange(link_, nullptr);
  link->open_at_worker = false;
  is_attached_ = false;
  // Behind a black hole the engine notices only the silence.
  const int64_t notice_delay = link->is_black_hole ? kSilence : kSecond;
  world_.time.After(world_.Delay(notice_delay), [link] { link->engine->OnClosed(link); });
  world_.time.After(world_.Delay(2 * kSecond), [this] { Dial(); });
}

void SimWorker::OnClosed(const std::shared_ptr<Link>& link) {
  if (link == link_) Reconnect();
}

bool SimWorker::AcceptTerm(int64_t term) {
  if (term >= term_ || world_.bug == SeededBug::kNoTermCheck) return true;
  Reconnect();
  return false;
}

void SimWorker::Report(WorkerReport report) {
  if (link_ == nullptr) return;
  world_.time.After(ArrivalAfter(world_, link_->last_to_engine),
                    [link = link_, report = std::move(report)]() mutable {
                      if (!link->is_black_hole) link->engine->OnReport(link, std::move(report));
                    });
}

void SimWorker::ReportDone(const WorkerReport& done) {
  if (!is_attached_) return;
  WorkerReport report = done;
  std::get<WorkerDone>(report.event).epoch = epoch_;
  Report(std::move(report));
}

void SimWorker::Die(LossCause cause, bool says_why) {
  if (is_dead_) return;
  is_dead_ = true;
  world_.lost_worker = true;
  world_.trace.Log(world_.time.now(), [&] { return process_id_ + " is dead"; });
  on_death_(cause);
  NotifyPeers();
  if (link_ == nullptr) return;
  link_->open_at_worker = false;
  world_.time.After(world_.Delay(kSecond), [link = link_, cause, says_why] {
    if (says_why && !link->is_black_hole) {
      link->engine->OnLeaving(link, cause);
    } else {
      link->engine->OnClosed(link);
    }
  });
}

// ---- commands

void SimWorker::Receive(const std::shared_ptr<Link>& link, EngineMessage message) {
  if (is_dead_ || link != link_) return;
  if (is_hung()) {
    return world_.time.After(hung_until_ - world_.time.now(),
                             [this, link, message = std::move(message)]() mutable {
                               Receive(link, std::move(message));
                             });
  }
  const WorkerCommand& command = message.send.command;
  if (const auto* const form = std::get_if<FormGroup>(&command)) {
    if (AcceptTerm(form->term)) Handle(*form, message);
  } else if (const auto* const adopt = std::get_if<AdoptGroup>(&command)) {
    if (AcceptTerm(adopt->term)) Handle(*adopt, message);
  } else if (const auto* const die = std::get_if<SendDie>(&command)) {
    Handle(*die, message);
  } else if (is_attached_ && message.send.epoch == epoch_) {
    HandleMessage(message);
    StartReady();
  }
}

void SimWorker::HandleMessage(EngineMessage& message) {
  // A copy, as a handler may move from the message.
  const WorkerCommand command = message.send.command;
  std::visit([&](const auto& one) { Handle(one, message); }, command);
}

void SimWorker::Handle(const FormGroup& command, EngineMessage& message) {
  if (command.rendezvous) JoinRendezvous(*command.rendezvous);
  epoch_ = message.send.epoch;
  term_ = command.term;
  is_attached_ = true;
  ++generation_;
  models_.clear();
  versions_.clear();
  lanes_.clear();
  running_.clear();
  done_.clear();
  waiting_samples_.clear();
}

void SimWorker::Handle(const AdoptGroup& command, EngineMessage& message) {
  epoch_ = message.send.epoch;
  term_ = command.term;
  is_attached_ = true;
  for (const auto& [id, done] : done_) ReportDone(done);
}

bool SimWorker::Begin(const std::string& request_id) {
  const auto done = done_.find(request_id);
  if (done != done_.end()) ReportDone(done->second);
  return done == done_.end() && running_.insert(request_id).second;
}

void SimWorker::Handle(const SendTrainBatch& command, EngineMessage& message) {
  for (const SendTrainBatch::Item& item : command.items) {
    if (!Begin(item.request_id)) continue;
    const SharedBody& body = message.bodies.at(item.request_id);
    lanes_[body->model_id].waiting.push_back(
        {item.request_id, body->model_id, true, SendTrainBatch{{item}}, body});
  }
}

void SimWorker::Handle(const SendSample& command, EngineMessage& message) {
  if (!Begin(command.request_id)) return;
  waiting_samples_.push_back(
      {command.request_id, "", false, command, message.bodies.at(command.request_id)});
}

void SimWorker::Handle(const SendCancel& command, EngineMessage&) {
  if (running_.erase(command.request_id) == 0) return;
  std::erase_if(waiting_samples_,
                [&](const Work& work) { return work.request_id == command.request_id; });
  WorkerReport report;
  WorkerDone done;
  done.group = group_;
  done.request_id = command.request_id;
  done.error = ErrorInfo{absl::StatusCode::kCancelled, "cancelled", "", "sample was cancelled"};
  report.event = done;
  report.result = {.failed = true, .code = "cancelled", .message = "sample was cancelled"};
  ReportDone(done_[command.request_id] = report);
}

void SimWorker::Handle(const SendAck& command, EngineMessage&) {
  for (const std::string& id : command.request_ids) done_.erase(id);
}

void SimWorker::Handle(const SendDie&, EngineMessage&) { Die(LossCause::kEnded); }

void SimWorker::Handle(const SendClearGradient& command, EngineMessage&) {
  lanes_[command.model_id].waiting.push_back({"", command.model_id, false, command, nullptr});
}

void SimWorker::Handle(const SendSnapshot& command, EngineMessage&) {
  lanes_[command.model_id].waiting.push_back({"", command.model_id, false, command, nullptr});
}

template <typename Command>
void SimWorker::Handle(const Command& command, EngineMessage&) {
  if (!command.request_id.empty() && !Begin(command.request_id)) return;
  const std::string model_id = ModelIdOf(command);
  lanes_[model_id].waiting.push_back({command.request_id, model_id, false, command, nullptr});
}

// ---- execution

void SimWorker::StartReady() {
  std::vector<Work> samples;
  for (auto it = waiting_samples_.begin(); it != waiting_samples_.end();) {
    const auto version = versions_.find(std::get<SendSample>(it->command).version_id);
    const bool waits = version != versions_.end() && !version->second.is_loaded;
    if (waits) {
      ++it;
      continue;
    }
    samples.push_back(std::move(*it));
    it = waiting_samples_.erase(it);
  }
  for (Work& sample : samples) Start(std::move(sample));
  for (auto& [id, lane] : lanes_) {
    if (is_dead_) return;
    StartLane(lane);
  }
}

// Train requests between two barriers run side by side and end in any order.
void SimWorker::StartLane(Lane& lane) {
  while (!lane.waiting.empty() && !lane.barrier_runs && !is_dead_) {
    const bool is_barrier = !lane.waiting.front().is_train;
    if (is_barrier && lane.num_running > 0) return;
    Work work = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    ++lane.num_running;
    lane.barrier_runs = is_barrier;
    Start(std::move(work));
  }
}

void SimWorker::Start(Work work) {
  if (!work.request_id.empty()) {
    Report({.event = WorkerStarted{group_, epoch_, {work.request_id}}, .result = {}});
  }
  const bool kills =
      work.body != nullptr && work.body->kills > 0 && world_.random.Chance(work.body->kills);
  if (kills) {
    ++world_.kills[work.request_id];
    return AnyPeer().Die(LossCause::kCrashed);
  }
  world_.time.After(world_.Delay(world_.swarm.max_work),
                    [this, work = std::move(work), began = generation_] {
                      if (!is_dead_ && began == generation_) Finish(work);
                    });
}

void SimWorker::Finish(const Work& work) {
  const int64_t to_come = AwaitsPeers() ? kSecond : 0;
  if (to_come == 0 && !HasPeers()) return;  // it never ends
  const int64_t wait = std::max(to_come, HeldUpUntil() - world_.time.now());
  if (wait > 0) {
    return world_.time.After(wait, [this, work, began = generation_] {
      if (!is_dead_ && began == generation_) Finish(work);
    });
  }
  // A sample may have been cancelled meanwhile.
  const bool is_wanted = work.request_id.empty() || running_.count(work.request_id) > 0;
  if (is_wanted) {
    WorkerReport report;
    Run(work, report);
    if (running_.erase(work.request_id) > 0) ReportDone(done_[work.request_id] = report);
  }
  if (!work.model_id.empty()) {
    const auto lane = lanes_.find(work.model_id);
    --lane->second.num_running;
    lane->second.barrier_runs = false;
    if (lane->second.waiting.empty() && lane->second.num_running == 0) lanes_.erase(lane);
  }
  StartReady();
}

const CountingAdapter* SimWorker::Find(const std::string& model_id) const {
  const auto it = models_.find(model_id);
  return it == models_.end() ? nullptr : &it->second;
}

void SimWorker::CheckHoldsNothing() const {
  const auto check = [&](const char* what, const auto& held) {
    if (held.empty()) return;
    throw Violation("I6", absl::StrFormat("%s still holds %d %s", process_id_, held.size(), what));
  };
  check("models", models_);
  check("sampler versions", versions_);
  check("running requests", running_);
  check("results that were not acknowledged", done_);
}

}  // namespace lathe::engine::simulation
