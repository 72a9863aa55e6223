#include "services/engine/simulation/sim_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace lathe::engine::simulation {
namespace {

constexpr int64_t kHeartbeatPeriod = 5 * kSecond;
constexpr size_t kMaxModels = 3;

template <typename Container>
auto& Any(World& world, Container& container) {
  auto it = container.begin();
  std::advance(it, world.random.Below(static_cast<int64_t>(container.size())));
  return *it;
}

}  // namespace

SimClient::SimClient(World& world, int64_t number, std::function<SimEngine*()> find_engine,
                     const std::vector<std::unique_ptr<SimClient>>& neighbours)
    : world_(world),
      name_(absl::StrFormat("client%d", number)),
      tenant_id_(absl::StrFormat("tenant%d", number % 3)),
      is_serial_(world.random.Chance(world.swarm.serial)),
      find_engine_(std::move(find_engine)),
      neighbours_(neighbours),
      num_actions_left_(world.swarm.actions_per_client) {
  Begin();
  SendHeartbeat();
}

void SimClient::Begin() {
  world_.time.After(world_.Delay(world_.swarm.think_time), [this] { Act(); });
}

void SimClient::Act() {
  if (has_vanished_ || num_actions_left_ == 0) return;
  if (naps_) return Begin();
  if (session_id_.empty()) {
    if (!asks_for_session_) {
      asks_for_session_ = true;
      // The session may exist long before the client learns its id.
      heard_at_ = world_.time.now();
      CreateSession event;
      event.row.tenant_id = tenant_id_;
      event.row.ordering = is_serial_ ? SessionOrdering::kSerial : SessionOrdering::kConcurrent;
      Ask(event, [this](const Answer& answer) { HandleSession(answer); });
    }
  } else {
    --num_actions_left_;
    ActOnce();
  }
  Begin();
}

void SimClient::HandleSession(const Answer& answer) {
  if (!answer.error) {
    session_id_ = answer.id;
    return RecordAnswer();
  }
  if (answer.error->code != "session_quota") {
    throw Violation("I1", absl::StrFormat("%s gets no session: %s", name_, answer.error->message));
  }
  asks_for_session_ = false;
  if (num_actions_left_ > 0) --num_actions_left_;
}

void SimClient::ActOnce() {
  const Swarm& swarm = world_.swarm;
  if (programs_.empty() || (programs_.size() < kMaxModels && Chance(50))) return CreateModel();
  if (num_actions_left_ == 0 && Chance(swarm.vanish)) return Vanish();
  if (Chance(swarm.nap)) return Nap();
  if (Chance(swarm.intrude)) return Intrude();
  if (Chance(swarm.sample)) return Sample();
  if (Chance(swarm.remove)) return RemoveCheckpoint();
  Program& program = Any(world_, programs_);
  if (program.creation->request_id.empty()) return;  // its id is unknown so far
  if (Chance(swarm.reuse)) return Reuse(program);
  if (!program.skipped_seqs.empty() && Chance(swarm.late)) return TrainLate(program);
  if (Chance(swarm.unload)) return Unload(program);
  const bool waits =
      !program.ops.empty() && !program.ops.back()->is_answered && !program.ops.back()->is_given_up;
  // The SDK sends the requests of a serial session one after the other.
  if (is_serial_ && waits) return;
  if (!is_serial_ && Chance(swarm.chunks)) return TrainChunks(program);
  Train(program);
}

// ---- training

Submit SimClient::NewSubmit(const std::string& owner, OpClass op_class, int64_t seq_id,
                            OperationKind kind, OperationArgs args) {
  Submit submit;
  submit.tenant_id = tenant_id_;
  submit.owner_id = owner;
  submit.op_class = op_class;
  submit.seq_id = seq_id;
  submit.kind = kind;
  submit.args = std::move(args);
  submit.content_hash = absl::StrFormat("%x", world_.random.Next());
  return submit;
}

ClientOp& SimClient::NewOp(Submit submit) {
  ClientOp& op = ops_.emplace_back();
  op.submit = std::move(submit);
  return op;
}

void SimClient::CreateModel() {
  Program& program = programs_.emplace_back();
  const int64_t seq = next_model_seq_++;
  program.model_id = absl::StrFormat("%s:train:%d", session_id_, seq);
  OperationArgs args = CreateModelArgs{.base_model = "base"};
  OperationKind kind = OperationKind::kCreateModel;
  if (!training_paths_.empty() && Chance(world_.swarm.load)) {
    args = LoadArgs{
        .path = Any(world_, training_paths_), .with_optimizer = Chance(500), .creates_model = true};
    kind = OperationKind::kLoadWeights;
  }
  program.creation = &NewOp(NewSubmit(session_id_, OpClass::kModel, seq, kind, std::move(args)));
  object_ids_.push_back(program.model_id);
  Send(*program.creation);
}

OperationArgs SimClient::ArgsOf(OperationKind kind, const Program&) {
  switch (kind) {
    case OperationKind::kOptimStep:
      return OptimStepArgs{.adam_params = std::to_string(world_.random.Below(1000))};
    case OperationKind::kSaveWeights:
      return SaveArgs{.name = absl::StrFormat("n%d", world_.random.Below(3)),
                      .overwrite = Chance(700)};
    case OperationKind::kSaveWeightsForSampler:
      if (Chance(300)) {
        return SaveArgs{.name = absl::StrFormat("s%d", world_.random.Below(3)),
                        .overwrite = Chance(700)};
      }
      return SaveArgs{.sampling_session_seq_id = next_sampler_seq_++, .inflight = Chance(200)};
    case OperationKind::kLoadWeights:
      return LoadArgs{.path = Any(world_, training_paths_), .with_optimizer = Chance(500)};
    default:
      return TrainArgs{};
  }
}

void SimClient::AddBody(ClientOp& op, bool forward_only, int64_t num_samples) {
  RequestBody body;
  body.num_samples = num_samples;
  body.model_id = op.submit.owner_id;
  body.seq_id = op.submit.seq_id;
  body.forward_only = forward_only;
  body.content = world_.random.Next();
  body.fails = Chance(world_.swarm.wrong);
  // Some kill a worker only sometimes, for example the one that replays them.
  if (Chance(world_.swarm.poison)) body.kills = Chance(700) ? 1000 : 300;
  op.body = std::make_shared<const RequestBody>(std::move(body));
  op.submit.payload.tokens = world_.random.Between(1, 30);
  op.submit.payload.bytes = 4 * op.submit.payload.tokens;
  if (!Chance(world_.swarm.invalid)) return;
  op.submit.invalid = ErrorInfo{absl::StatusCode::kInvalidArgument, "invalid", "data", "is bad"};
}

ClientOp& SimClient::SendTraining(Program& program, int64_t seq_id, OperationKind kind) {
  ClientOp& op =
      NewOp(NewSubmit(program.model_id, OpClass::kTrain, seq_id, kind, ArgsOf(kind, program)));
  const bool is_forward = kind == OperationKind::kForward;
  if (is_forward || kind == OperationKind::kForwardBackward) AddBody(op, is_forward);
  program.ops.push_back(&op);
  Send(op);
  return op;
}

void SimClient::Train(Program& program) {
  const Swarm& swarm = world_.swarm;
  if (Chance(swarm.gap)) program.skipped_seqs.push_back(program.next_seq++);
  OperationKind kind = OperationKind::kForwardBackward;
  if (Chance(swarm.step)) {
    kind = OperationKind::kOptimStep;
  } else if (Chance(swarm.forward)) {
    kind = OperationKind::kForward;
  } else if (Chance(swarm.save)) {
    kind = OperationKind::kSaveWeights;
  } else if (Chance(swarm.publish)) {
    kind = OperationKind::kSaveWeightsForSampler;
  } else if (!training_paths_.empty() && Chance(swarm.load)) {
    kind = OperationKind::kLoadWeights;
  }
  SendTraining(program, program.next_seq++, kind);
}

// Sends parallel submissions in any order.
void SimClient::TrainChunks(Program& program) {
  std::vector<int64_t> seqs;
  for (int64_t left = world_.random.Between(2, 5); left > 0; --left) {
    seqs.push_back(program.next_seq++);
  }
  for (size_t i = seqs.size(); i > 1; --i) {
    std::swap(seqs[i - 1], seqs[static_cast<size_t>(world_.random.Below(static_cast<int64_t>(i)))]);
  }
  for (const int64_t seq : seqs) {
    if (Chance(world_.swarm.gap)) {
      program.skipped_seqs.push_back(seq);
    } else {
      SendTraining(program, seq, OperationKind::kForwardBackward);
    }
  }
}

void SimClient::TrainLate(Program& program) {
  const int64_t seq = program.skipped_seqs.back();
  program.skipped_seqs.pop_back();
  SendTraining(program, seq, OperationKind::kForwardBackward);
}

void SimClient::Reuse(Program& program) {
  if (program.ops.empty()) return;
  const ClientOp& known = *Any(world_, program.ops);
  if (known.request_id.empty()) return;
  ClientOp& op = NewOp(NewSubmit(program.model_id, OpClass::kTrain, known.submit.seq_id,
                                 OperationKind::kForward, TrainArgs{}));
  AddBody(op, /*forward_only=*/true);
  op.submit.invalid.reset();
  op.is_reuse = true;
  Send(op);
}

void SimClient::Unload(Program& program) {
  if (program.is_unloaded) return;
  program.is_unloaded = true;
  Send(NewOp(
      NewSubmit(program.model_id, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{})));
}

// Asks for an object of another tenant by its correct name.
void SimClient::Intrude() {
  const SimClient& other = *Any(world_, neighbours_);
  if (other.tenant_id_ == tenant_id_ || other.object_ids_.empty()) return;
  const std::string& id = Any(world_, other.object_ids_);
  const bool is_model = id.find(":train:") != std::string::npos;
  ClientOp& op = NewOp(
      is_model ? NewSubmit(id, OpClass::kTrain, 1000, OperationKind::kOptimStep, OptimStepArgs{})
               : NewSubmit(id, OpClass::kSample, 1000, OperationKind::kSample, SampleArgs{}));
  op.is_foreign = true;
  Send(op);
}

// ---- sampling

void SimClient::Sample() {
  if (samplers_.empty() || Chance(100)) return MakeSampler();
  SamplerProgram& sampler = Any(world_, samplers_);
  const SampleArgs args{
      .num_samples = world_.random.Between(1, 3), .prompt_tokens = 3, .max_tokens = 5};
  ClientOp& op = NewOp(
      NewSubmit(sampler.id, OpClass::kSample, sampler.next_seq++, OperationKind::kSample, args));
  AddBody(op, false, args.num_samples);
  op.submit.invalid.reset();
  Send(op);
  if (!Chance(world_.swarm.cancel)) return;
  world_.time.After(world_.Delay(5 * kSecond), [this, &op] {
    if (op.request_id.empty() || has_vanished_) return;
    op.is_cancelled = true;
    Ask(CancelSample{0, tenant_id_, op.request_id}, [](const Answer&) {});
  });
}

void SimClient::MakeSampler() {
  CreateSamplingSession event;
  event.tenant_id = tenant_id_;
  event.session_id = session_id_;
  event.sampling_session_seq_id = next_sampler_seq_++;
  if (sampler_paths_.empty()) {
    event.base_model = "base";
  } else {
    event.model_path = Any(world_, sampler_paths_);
  }
  Ask(event, [this](const Answer& answer) {
    if (answer.error) return;  // the checkpoint is gone, or no worker has attached yet
    samplers_.push_back({answer.id, 1});
    object_ids_.push_back(answer.id);
  });
}

void SimClient::RemoveCheckpoint() {
  std::vector<std::string>& paths = Chance(500) ? training_paths_ : sampler_paths_;
  if (paths.empty()) return;
  DeleteCheckpoint event;
  event.tenant_id = tenant_id_;
  event.tinker_path = Any(world_, paths);
  Ask(event, [](const Answer&) {});
}

// ---- session

void SimClient::Vanish() {
  has_vanished_ = true;
  world_.silent_sessions.insert(session_id_);
  world_.trace.Log(world_.time.now(), [&] { return name_ + " vanishes"; });
}

// Simulates a closed laptop or a network outage.
void SimClient::Nap() {
  naps_ = true;
  world_.trace.Log(world_.time.now(), [&] { return name_ + " naps"; });
  // Shorter than the time for which undelivered results are kept.
  const CoreOptions& core = world_.swarm.core;
  const int64_t longest =
      std::min(2 * core.session_timeout, core.result_kept_after_delivery - 30 * kSecond);
  world_.time.After(world_.Delay(longest), [this] { naps_ = false; });
}

void SimClient::ComeBack() {
  has_vanished_ = false;
  num_asking_ = 0;
  for (ClientOp& op : ops_) op.is_forgotten = !op.result;
  world_.trace.Log(world_.time.now(), [&] { return name_ + " comes back"; });
  SendHeartbeat();
}

void SimClient::TouchModels() {
  if (has_vanished_ || session_id_.empty()) return;
  for (Program& program : programs_) {
    const std::optional<SimResult>& created = program.creation->result;
    if (!created || created->failed || program.is_unloaded) continue;
    ClientOp& op = NewOp(NewSubmit(program.model_id, OpClass::kTrain, program.next_seq++,
                                   OperationKind::kForward, TrainArgs{}));
    AddBody(op, /*forward_only=*/true);
    RequestBody harmless = *op.body;
    harmless.fails = false;
    harmless.kills = 0;
    op.body = std::make_shared<const RequestBody>(std::move(harmless));
    op.submit.invalid.reset();
    program.ops.push_back(&op);
    Send(op);
  }
}

void SimClient::RecordAnswer() {
  was_away_ = session_may_be_over();  // a duplicate is answered even then
  RecordSilence();
  heard_at_ = world_.time.now();
}

void SimClient::RecordSilence() {
  const int64_t silence = world_.time.now() - heard_at_;
  if (silence > world_.swarm.core.session_timeout / 2) world_.silent_sessions.insert(session_id_);
}

void SimClient::SendHeartbeat() {
  world_.time.After(kHeartbeatPeriod, [this] {
    if (has_vanished_ || is_finished_) return;
    if (!session_id_.empty()) {
      SendOnce(Heartbeat{0, tenant_id_, session_id_}, nullptr, [this](const Answer& answer) {
        if (!answer.error && !answer.session_finished) RecordAnswer();
      });
    }
    SendHeartbeat();
  });
}

void SimClient::FinishSession() {
  if (is_finishing_ || session_id_.empty() || has_vanished_) return;
  is_finishing_ = true;
  Ask(engine::FinishSession{0, tenant_id_, session_id_, "success", ""},
      [this](const Answer&) { is_finished_ = true; });
}

bool SimClient::is_settled() const { return has_vanished_ || OpenWork().empty(); }

std::string SimClient::OpenWork() const {
  if (num_asking_ > 0) return name_ + " waits for the answer to a call";
  for (const ClientOp& op : ops_) {
    if (op.is_forgotten || op.is_dropped) continue;
    const bool is_open = op.request_id.empty() ? !op.is_answered && !op.is_given_up : !op.result;
    if (!is_open) continue;
    return absl::StrFormat("%s waits for %s of %s seq %d (request %s)", name_,
                           op.request_id.empty() ? "the answer" : "the result", op.submit.owner_id,
                           op.submit.seq_id, op.request_id);
  }
  return "";
}

}  // namespace lathe::engine::simulation
