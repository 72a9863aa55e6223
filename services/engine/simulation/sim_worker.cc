#include "services/engine/simulation/sim_worker.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "services/engine/core/models/recovery_need.h"

namespace lathe::engine::simulation {
namespace {

SimResult ResultOf(const WorkerDone& done, uint64_t weights) {
  SimResult result{.weights = weights};
  if (done.error) {
    result.failed = true;
    result.code = done.error->code;
    result.message = done.error->message;
  }
  return result;
}

}  // namespace

SimWorker::SimWorker(World& world, std::string group, GroupRole role, int64_t rank,
                     std::function<SimEngine*()> find_engine,
                     std::function<void(LossCause cause)> on_death)
    : world_(world),
      role_(role),
      rank_(rank),
      pid_(++world.last_process),
      counting_(std::move(group), absl::StrFormat("worker%d", pid_), "base", world.disk),
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
  ReportEvent(WorkerReady{group(), Ready()});
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
  link_->group = group();
  link_->rank = rank_;
  if (rank_ == 0) world_.sources[group()] = this;
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
  WorkerAttached hello = counting_.Hello();
  if (is_ready_) hello.ready = Ready();
  hello.pid = pid_;
  hello.is_supervised = world_.swarm.is_supervised;
  hello.rank = rank_;
  hello.mesh.tp = world_.swarm.num_ranks;
  hello.session = session_;
  hello.address = hello.process_id;
  hello.role = role_;
  hello.serves_versions = role_ == GroupRole::kTrain && world_.swarm.serves_versions;
  return hello;
}

ReadyModel SimWorker::Ready() const {
  return counting_.Ready(/*kv_cache_tokens=*/1000, world_.swarm.max_running_samples);
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

void SimWorker::Report(WorkerReport report) {
  if (link_ == nullptr) return;
  world_.time.After(ArrivalAfter(world_, link_->last_to_engine),
                    [link = link_, report = std::move(report)]() mutable {
                      if (!link->is_black_hole) link->engine->OnReport(link, std::move(report));
                    });
}

void SimWorker::SendReports() {
  std::erase_if(sequences_, [&](const auto& one) { return !counting_.IsRunning(one.first); });
  for (CountingWorker::Report& report : counting_.TakeReports()) {
    if (const auto* const done = std::get_if<WorkerDone>(&report.event)) {
      if (report.write) Write(*report.write);
      if (is_attached_) Report({.event = report.event, .result = ResultOf(*done, report.weights)});
    } else if (report.write) {
      WriteLater(std::move(report));
    } else {
      ReportEvent(std::move(report.event));
    }
  }
}

void SimWorker::Write(const CountingWorker::Write& write) {
  if (world_.disk.Write(write.dir, write.files, world_.store.IsNamed(write.dir))) return;
  throw Violation("I4", write.dir + " is written again");
}

void SimWorker::WriteLater(CountingWorker::Report report) {
  world_.time.After(world_.Delay(world_.swarm.max_snapshot),
                    [this, report = std::move(report), began = counting_.generation()] {
                      if (is_dead_) return;
                      Write(*report.write);
                      if (began == counting_.generation()) ReportEvent(report.event);
                    });
}

void SimWorker::Die(LossCause cause, bool says_why) {
  if (is_dead_) return;
  is_dead_ = true;
  world_.lost_worker = true;
  world_.trace.Log(world_.time.now(), [&] { return counting_.process_id() + " is dead"; });
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
  const auto* const form = std::get_if<FormGroup>(&command);
  if (std::holds_alternative<SendDie>(command)) return Die(LossCause::kEnded);
  if (form == nullptr && !std::holds_alternative<AdoptGroup>(command)) {
    if (!is_attached_ || !counting_.IsOfEpoch(message.send)) return;
    Obey(message);
    return StartReady();
  }
  if (counting_.IsOutdated(command) && world_.bug != SeededBug::kNoTermCheck) return Reconnect();
  if (form != nullptr) {
    if (form->rendezvous) JoinRendezvous(*form->rendezvous);
    lanes_.clear();
    waiting_samples_.clear();
  }
  is_attached_ = true;
  sequences_.clear();
  Obey(message);
}

void SimWorker::Obey(const EngineMessage& message) {
  const auto* const sample = std::get_if<SendSample>(&message.send.command);
  if (sample != nullptr) CheckSequences(*sample);
  for (Work& work : counting_.Receive(message.send, message.bodies)) Enqueue(std::move(work));
  std::erase_if(waiting_samples_,
                [&](const Work& waiting) { return !counting_.IsRunning(waiting.request_id); });
  if (sample != nullptr) RecordSequences(*sample, message.bodies);
  SendReports();
}

void SimWorker::Enqueue(Work work) {
  if (const auto* const load = work.As<SendLoadVersion>()) {
    StartLoad(*load);
  } else if (work.As<SendSample>() != nullptr) {
    waiting_samples_.push_back(std::move(work));
  } else {
    lanes_[work.model_id].waiting.push_back(std::move(work));
  }
}

// ---- execution

void SimWorker::StartReady() {
  std::vector<Work> samples;
  for (auto it = waiting_samples_.begin(); it != waiting_samples_.end();) {
    const auto version = counting_.versions().find(it->As<SendSample>()->version_id);
    const bool waits = version != counting_.versions().end() && !version->second.is_loaded;
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
    const bool is_barrier = lane.waiting.front().As<SendTrainBatch>() == nullptr;
    if (is_barrier && lane.num_running > 0) return;
    Work work = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    ++lane.num_running;
    lane.barrier_runs = is_barrier;
    Start(std::move(work));
  }
}

void SimWorker::Start(Work work) {
  counting_.Start(work);
  if (!work.request_id.empty()) {
    ReportEvent(WorkerStarted{group(), counting_.epoch(), {work.request_id}});
  }
  const bool kills =
      work.body != nullptr && work.body->kills > 0 && world_.random.Chance(work.body->kills);
  if (kills) {
    ++world_.kills[work.request_id];
    return AnyPeer().Die(LossCause::kCrashed);
  }
  const int64_t duration = world_.Delay(world_.swarm.max_work);
  EndSequences(work, duration);
  world_.time.After(duration, [this, work = std::move(work), began = counting_.generation()] {
    if (!is_dead_ && began == counting_.generation()) Finish(work);
  });
}

void SimWorker::EndSequences(const Work& work, int64_t duration) {
  const bool is_sample = work.As<SendSample>() != nullptr && work.body != nullptr;
  if (!is_sample || world_.swarm.max_running_samples == 0) return;
  for (int64_t i = 1; i < work.body->num_samples; ++i) {
    world_.time.After(world_.Delay(duration),
                      [this, id = work.request_id, began = counting_.generation()] {
                        const bool runs = !is_dead_ && began == counting_.generation() &&
                                          counting_.IsRunning(id) && HasPeers() && !is_hung();
                        if (!runs) return;
                        counting_.EndSequence(id);
                        const auto sent = sequences_.find(id);
                        if (sent != sequences_.end()) --sent->second.num_left;
                        SendReports();
                      });
  }
}

void SimWorker::Finish(Work work) {
  const int64_t to_come = AwaitsPeers() ? kSecond : 0;
  if (to_come == 0 && !HasPeers()) return;  // it never ends
  const int64_t wait = std::max(to_come, HeldUpUntil() - world_.time.now());
  if (wait > 0) {
    return world_.time.After(wait, [this, work = std::move(work), began = counting_.generation()] {
      if (!is_dead_ && began == counting_.generation()) Finish(work);
    });
  }
  // A sample may have been cancelled meanwhile.
  if (work.request_id.empty() || counting_.IsRunning(work.request_id)) {
    Prepare(work);
    counting_.Run(work);
    SendReports();
  }
  if (!work.model_id.empty()) {
    const auto lane = lanes_.find(work.model_id);
    --lane->second.num_running;
    lane->second.barrier_runs = false;
    if (lane->second.waiting.empty() && lane->second.num_running == 0) lanes_.erase(lane);
  }
  StartReady();
}

// ---- checks and faults

void SimWorker::Prepare(Work& work) {
  CheckRole(work);
  CountingAdapter* const model = counting_.Find(work.model_id);
  if (const auto* const load = work.As<SendLoadAdapter>()) {
    const CheckpointFiles* const files = world_.disk.Find(load->dir);
    if (files != nullptr) world_.loaded[work.request_id] = *files;
  } else if (model == nullptr) {
    return;
  } else if (const auto* const batch = work.As<SendTrainBatch>()) {
    CheckGradient(*model, *batch, *work.body);
  } else if (auto* const step = std::get_if<SendOptimStep>(&work.command)) {
    Prepare(*model, *step);
  }
}

void SimWorker::CheckRole(const Work& work) const {
  const GroupRole other = work.model_id.empty() ? GroupRole::kTrain : GroupRole::kSample;
  if (role_ != other || work.As<SendDropAdapter>() != nullptr) return;
  throw Violation("I2", group() + " was sent a command of another role");
}

void SimWorker::CheckSequences(const SendSample& sample) const {
  const int64_t running = world_.swarm.max_running_samples;
  if (running == 0) return;
  int64_t num_sequences = 0;
  for (const auto& [id, sent] : sequences_) {
    const bool counts = sent.tenant_id == sample.tenant_id && id != sample.request_id;
    if (counts) num_sequences += sent.num_left;
  }
  // The engine waits until fewer are left. Those of other tenants do not count: each has a share.
  const int64_t limit = running + std::max<int64_t>(1, running / 4);
  if (num_sequences < limit) return;
  throw Violation("I6",
                  absl::StrFormat("%s was sent a sample of %s while it had %d sequences, limit %d",
                                  group(), sample.tenant_id, num_sequences, limit));
}

void SimWorker::RecordSequences(const SendSample& sample, const SharedBodies& bodies) {
  const auto body = bodies.find(sample.body_id);
  if (body == bodies.end() || !counting_.IsRunning(sample.request_id)) return;
  sequences_[sample.request_id] = {
      sample.tenant_id, body->second->num_samples - counting_.NumEnded(sample.request_id)};
}

void SimWorker::CheckGradient(const CountingAdapter& model, const SendTrainBatch& batch,
                              const RequestBody& body) const {
  const int64_t seq = batch.items.front().seq_id;
  const auto held = model.window.find(seq);
  if (body.fails || body.forward_only || held == model.window.end()) return;
  if (held->second == body.content) return;
  throw Violation("I2", absl::StrFormat("%s has another gradient of seq %d", body.model_id, seq));
}

void SimWorker::Prepare(CountingAdapter& model, SendOptimStep& step) {
  if (IsSetBack(step.request_id) && !model.window.empty()) {
    model.window.erase(std::prev(model.window.end()));
  }
  if (world_.bug != SeededBug::kWindowNotCompared) return;
  step.expected_applied_seq = model.applied_seq;
  step.window = SeqsOf(model.window);
}

bool SimWorker::IsSetBack(const std::string& request_id) {
  if (world_.swarm.setback == 0 || !ModelOfReplay(request_id).empty()) return false;
  return world_.random.Chance(world_.swarm.setback) && world_.set_back.insert(request_id).second;
}

void SimWorker::CheckHoldsNothing() const {
  const std::string held = counting_.DescribeHeld();
  if (held.empty()) return;
  throw Violation("I6", absl::StrFormat("%s still holds %s", counting_.process_id(), held));
}

// ---- versions

void SimWorker::LoseVersion() {
  const auto& versions = counting_.versions();
  if (versions.empty() || !is_attached_) return;
  auto it = versions.begin();
  std::advance(it, world_.random.Below(static_cast<int64_t>(versions.size())));
  if (!it->second.is_loaded) return;
  world_.trace.Log(world_.time.now(),
                   [&] { return counting_.process_id() + " loses " + it->first; });
  counting_.LoseVersion(it->first);
  SendReports();
}

void SimWorker::StartLoad(const SendLoadVersion& load) {
  world_.time.After(world_.Delay(world_.swarm.max_work),
                    [this, load, began = counting_.generation()] {
                      if (is_dead_ || began != counting_.generation()) return;
                      if (!counting_.AwaitsLoad(load)) return;
                      counting_.EndLoad(load, WeightsFor(load));
                      SendReports();
                      StartReady();
                    });
}

std::optional<Weights> SimWorker::WeightsFor(const SendLoadVersion& load) const {
  if (!load.source_group.empty()) {
    const auto source = world_.sources.find(load.source_group);
    if (world_.random.Chance(world_.swarm.broken_read) && !world_.is_healed) return std::nullopt;
    if (source == world_.sources.end()) return std::nullopt;
    return source->second->Served(load.version_id, load.source_seq_id);
  }
  const CheckpointFiles* const files = world_.disk.Find(load.dir);
  return files == nullptr ? std::nullopt : std::optional(files->weights);
}

std::optional<Weights> SimWorker::Served(const std::string& version_id, int64_t seq_id) const {
  const CountingWorker::Version* const version = counting_.FindLoaded(version_id);
  const bool is_here = !is_dead_ && !is_hung() && version != nullptr && version->seq_id == seq_id;
  return is_here ? std::optional(version->weights) : std::nullopt;
}

}  // namespace lathe::engine::simulation
