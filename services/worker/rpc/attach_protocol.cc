#include "services/worker/rpc/attach_protocol.h"

#include <unistd.h>

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/protocol.h"
#include "libs/common/version.h"
#include "services/worker/rpc/report_conversion.h"

namespace lathe::worker {
namespace {

// While more messages wait for the stream, the tokens of streamed samples are dropped.
constexpr size_t kMaxOutgoingForProgress = 1024;

lathe::v1::GroupRole ToProtoRole(const std::string& role) {
  if (role == "train") return lathe::v1::GROUP_ROLE_TRAIN;
  return role == "sample" ? lathe::v1::GROUP_ROLE_SAMPLE : lathe::v1::GROUP_ROLE_UNSPECIFIED;
}

// Makes the answer to a command that the executor refuses.
using RefusalMaker = std::function<Report(absl::Status)>;

RefusalMaker MakerOfRefusals(const std::string& request_id, const Command& command) {
  if (const auto* snapshot = std::get_if<Snapshot>(&command)) {
    return [done = SnapshotDone{.snapshot_id = snapshot->snapshot_id,
                                .state = {.model_id = snapshot->model_id}}](absl::Status status) {
      SnapshotDone refused = done;
      refused.status = std::move(status);
      return refused;
    };
  }
  if (const auto* save = std::get_if<SaveVersion>(&command)) {
    return [saved = VersionSaved{.version_id = save->version_id, .dir = save->dir}](
               absl::Status status) {
      VersionSaved refused = saved;
      refused.status = std::move(status);
      return refused;
    };
  }
  if (const auto* load = std::get_if<LoadVersion>(&command)) {
    return [id = load->version_id](absl::Status status) {
      return VersionFailed{.version_id = id, .status = std::move(status)};
    };
  }
  if (const auto* serve = std::get_if<ServeVersion>(&command)) {
    return [served = VersionServed{.version_id = serve->version_id, .reader = serve->reader}](
               absl::Status status) {
      VersionServed refused = served;
      refused.status = std::move(status);
      return refused;
    };
  }
  return [request_id](absl::Status status) { return OpFailed{request_id, std::move(status)}; };
}

}  // namespace

AttachProtocol::AttachProtocol(WorkerIdentity identity, ExecutorPort& executor,
                               std::function<void(const RendezvousPoint&)> on_rendezvous)
    : identity_(std::move(identity)),
      executor_(executor),
      on_rendezvous_(std::move(on_rendezvous)) {}

lathe::v1::WorkerMessage AttachProtocol::BeginStream(const std::string& secret) {
  const ExecutorState state = executor_.State();
  outgoing_.clear();
  joiner_ = PieceJoiner();
  is_attached_ = false;
  ready_sent_ = state.ready;
  lathe::v1::WorkerMessage message;
  lathe::v1::Hello* hello = message.mutable_hello();
  hello->set_group(identity_.group);
  hello->set_rank(identity_.rank);
  hello->set_world(identity_.world);
  hello->set_lathe_version(std::string(kVersion));
  hello->set_protocol(OwnProtocol().newest);
  hello->set_oldest_protocol(OwnProtocol().oldest);
  hello->set_device(state.device);
  hello->set_secret(secret);
  hello->set_process_id(identity_.process_id);
  hello->set_epoch(epoch_);
  hello->set_term(term_);
  for (const ModelState& model : state.models) *hello->add_models() = ToProto(model);
  for (const HeldVersion& version : state.versions) {
    lathe::v1::HeldVersion* proto = hello->add_versions();
    proto->set_version_id(version.version_id);
    proto->set_seq_id(version.seq_id);
    proto->set_is_loading(version.is_loading);
  }
  for (std::string& request_id : request_table_.RunningIds()) {
    hello->add_running_request_ids(std::move(request_id));
  }
  if (state.ready) *hello->mutable_ready()->mutable_model() = ToProto(state.model);
  hello->set_base_model(identity_.base_model);
  hello->set_pid(getpid());
  hello->set_is_supervised(identity_.is_supervised);
  hello->mutable_mesh()->set_dp(identity_.mesh.dp);
  hello->mutable_mesh()->set_fsdp(identity_.mesh.fsdp);
  hello->mutable_mesh()->set_tp(identity_.mesh.tp);
  hello->set_session(session_);
  hello->set_address(identity_.address);
  hello->set_port(identity_.port);
  hello->set_role(ToProtoRole(identity_.role));
  if (!identity_.version_address.address.empty()) {
    hello->mutable_version_address()->set_address(identity_.version_address.address);
    hello->mutable_version_address()->set_token(identity_.version_address.token);
  }
  if (!identity_.checkpoint_place.address.empty()) {
    hello->mutable_checkpoint_place()->set_address(identity_.checkpoint_place.address);
    hello->mutable_checkpoint_place()->set_store_id(identity_.checkpoint_place.store_id);
  }
  return message;
}

AttachProtocol::Verdict AttachProtocol::Receive(lathe::v1::EngineMessage message) {
  const absl::StatusOr<bool> whole = joiner_.Join(&message);
  if (!whole.ok()) {
    reason_ = std::string(whole.status().message());
    return Verdict::kReconnect;
  }
  return *whole ? HandleMessage(message) : Verdict::kContinue;
}

AttachProtocol::Verdict AttachProtocol::HandleMessage(const lathe::v1::EngineMessage& message) {
  using Message = lathe::v1::EngineMessage;
  switch (message.message_case()) {
    case Message::kForm:
      if (!AcceptTerm(message.form().term())) return Verdict::kReconnect;
      if (message.form().has_rendezvous() && !JoinRendezvous(message.form().rendezvous()))
        return Verdict::kDie;
      Form(message.form());
      return Verdict::kContinue;
    case Message::kAdopt:
      if (!AcceptTerm(message.adopt().term())) return Verdict::kReconnect;
      Adopt(message.adopt());
      return Verdict::kContinue;
    case Message::kHeartbeat:
      return AcceptTerm(message.heartbeat().term()) ? Verdict::kContinue : Verdict::kReconnect;
    case Message::kDie:
      reason_ = message.die().reason();
      return Verdict::kDie;
    default:
      break;
  }
  if (!is_attached_ || message.epoch() != epoch_) {
    LogWarn("message of another epoch dropped",
            {{"epoch", message.epoch()}, {"own_epoch", epoch_}});
    return Verdict::kContinue;
  }
  if (message.has_ack()) {
    FailPoint("worker.ack.received");
    for (const std::string& request_id : message.ack().request_ids()) {
      request_table_.Acknowledge(request_id);
    }
  } else {
    Execute(message);
  }
  return Verdict::kContinue;
}

bool AttachProtocol::AcceptTerm(int64_t term) {
  if (term >= term_) return true;
  reason_ = absl::StrCat("engine's term is ", term, ", the last accepted one is ", term_);
  return false;
}

bool AttachProtocol::JoinRendezvous(const lathe::v1::RendezvousPoint& rendezvous) {
  if (session_ == rendezvous.session()) return true;
  if (!session_.empty()) {
    reason_ = "its peers are gone: the group is formed of other processes";
    return false;
  }
  session_ = rendezvous.session();
  if (on_rendezvous_) {
    on_rendezvous_({.session = session_,
                    .address = rendezvous.address(),
                    .port = static_cast<uint16_t>(rendezvous.port())});
  }
  return true;
}

void AttachProtocol::Form(const lathe::v1::Form& form) {
  epoch_ = form.epoch();
  term_ = form.term();
  is_attached_ = true;
  request_table_.Clear();
  held_answers_.clear();
  // Progress and Ready have epoch 0 and stay.
  std::erase_if(outgoing_, [](const lathe::v1::WorkerMessage& old) { return old.epoch() != 0; });
  // Rank 0 tells the other ranks, in order with its commands.
  if (identity_.rank == 0) executor_.Reset(++generation_);
  LogInfo("group formed", {{"epoch", epoch_}, {"term", term_}});
}

void AttachProtocol::Adopt(const lathe::v1::Adopt& adopt) {
  epoch_ = adopt.epoch();
  term_ = adopt.term();
  is_attached_ = true;
  const std::vector<const lathe::v1::OperationDone*> results = request_table_.DoneResults();
  for (const lathe::v1::OperationDone* done : results) QueueDone(*done);
  for (lathe::v1::WorkerMessage& answer : std::exchange(held_answers_, {})) {
    answer.set_epoch(epoch_);
    outgoing_.push_back(std::move(answer));
  }
  LogInfo("group adopted", {{"epoch", epoch_}, {"term", term_}, {"results", results.size()}});
}

void AttachProtocol::Execute(const lathe::v1::EngineMessage& message) {
  const bool has_peers = identity_.world > 1;
  TrainBatch batch;
  lathe::v1::EngineMessage encoded_batch;  // for the other ranks: the content of `batch`
  std::vector<Incoming> commands = ToCommands(message);
  for (size_t i = 0; i < commands.size(); ++i) {
    Incoming& incoming = commands[i];
    if (!IsNew(incoming)) continue;
    if (!incoming.command.ok()) {
      Refuse(incoming.request_id, incoming.command.status());
    } else if (auto* train = std::get_if<TrainBatch>(&*incoming.command)) {
      for (TrainRequest& request : train->requests) batch.requests.push_back(std::move(request));
      if (!has_peers) continue;
      *encoded_batch.mutable_train_batch()->add_items() =
          message.train_batch().items(static_cast<int>(i));
    } else {
      SubmitOrRefuse(incoming.request_id, *std::move(incoming.command),
                     has_peers ? message.SerializeAsString() : std::string());
    }
  }
  if (!batch.requests.empty()) SubmitBatch(std::move(batch), encoded_batch.SerializeAsString());
}

// Returns true if the request is new. A duplicate of a finished request is answered again. One of a
// running sample is answered with its progress, which an engine that adopts the worker lacks.
bool AttachProtocol::IsNew(const Incoming& incoming) {
  if (incoming.request_id.empty()) return true;
  const RequestTable::Arrival arrival = request_table_.Begin(incoming.request_id, incoming.info);
  if (arrival == RequestTable::Arrival::kDone)
    QueueDone(*request_table_.FindDone(incoming.request_id));
  if (arrival == RequestTable::Arrival::kRunning) QueueEnded(incoming.request_id);
  return arrival == RequestTable::Arrival::kNew;
}

void AttachProtocol::Refuse(const std::string& request_id, absl::Status status) {
  Absorb({.generation = generation_,
          .report = OpFailed{.request_id = request_id, .status = std::move(status)},
          .model = std::nullopt});
}

// A command that arrives while the process ends gets no answer: the next process will run it.
void AttachProtocol::SubmitOrRefuse(const std::string& request_id, Command command,
                                    std::string encoded) {
  const RefusalMaker make_refusal = MakerOfRefusals(request_id, command);
  absl::Status status = executor_.Submit(std::move(command), std::move(encoded));
  if (status.ok() || absl::IsCancelled(status)) return;
  Absorb({.generation = generation_,
          .report = make_refusal(std::move(status)),
          .model = std::nullopt});
}

void AttachProtocol::SubmitBatch(TrainBatch batch, std::string encoded) {
  std::vector<std::string> request_ids;
  for (const TrainRequest& request : batch.requests) request_ids.push_back(request.request_id);
  const absl::Status status = executor_.Submit(std::move(batch), std::move(encoded));
  if (status.ok() || absl::IsCancelled(status)) return;
  for (const std::string& request_id : request_ids) Refuse(request_id, status);
}

void AttachProtocol::Absorb(const ReportEvent& event) {
  if (event.generation != generation_) return;
  if (const auto* started = std::get_if<Started>(&event.report)) {
    if (!is_attached_) return;
    lathe::v1::Started* proto = Queue().mutable_started();
    for (const std::string& request_id : started->request_ids) proto->add_request_ids(request_id);
    return;
  }
  if (const auto* loaded = std::get_if<VersionLoaded>(&event.report)) {
    if (!is_attached_) return;
    lathe::v1::VersionLoaded* proto = Queue().mutable_version_loaded();
    proto->set_version_id(loaded->version_id);
    proto->set_inflight_seq_id(loaded->inflight_seq_id);
    return;
  }
  if (const auto* failed = std::get_if<VersionFailed>(&event.report)) {
    if (!is_attached_) return;
    lathe::v1::VersionFailed* proto = Queue().mutable_version_failed();
    proto->set_version_id(failed->version_id);
    *proto->mutable_error() = ToError(failed->status);
    return;
  }
  if (const auto* progress = std::get_if<SampleProgress>(&event.report)) {
    AbsorbProgress(*progress);
    return;
  }
  if (const auto* done = std::get_if<SnapshotDone>(&event.report)) {
    *QueueAnswer().mutable_snapshot_done() = ToProto(*done);
    return;
  }
  if (const auto* served = std::get_if<VersionServed>(&event.report)) {
    if (is_attached_) *Queue().mutable_version_served() = ToProto(*served);
    return;
  }
  if (const auto* saved = std::get_if<VersionSaved>(&event.report)) {
    *QueueAnswer().mutable_version_saved() = ToProto(*saved);
    return;
  }
  const std::string& request_id = AnsweredRequest(event.report);
  const RequestInfo* info = request_table_.FindRunning(request_id);
  if (info == nullptr) return;
  request_table_.Finish(ToOperationDone(event, *info));
  if (is_attached_) QueueDone(*request_table_.FindDone(request_id));
}

void AttachProtocol::AbsorbProgress(const SampleProgress& progress) {
  for (const EndedSequences& ended : progress.ended) {
    request_table_.SetEnded(ended.request_id, ended.num_ended);
  }
  if (!is_attached_) return;
  lathe::v1::SampleProgress proto = ToProto(progress);
  // The result of the sample has the tokens that are dropped here. The engine waits for the numbers
  // of sequences, which are as few as the sequences.
  if (outgoing_.size() >= kMaxOutgoingForProgress) proto.clear_tokens();
  const bool is_empty = proto.tokens().empty() && proto.ended().empty();
  if (!is_empty) *Queue().mutable_sample_progress() = std::move(proto);
}

void AttachProtocol::QueueEnded(const std::string& request_id) {
  const int64_t num_ended = request_table_.NumEnded(request_id);
  if (num_ended == 0) return;
  lathe::v1::EndedSequences* const ended = Queue().mutable_sample_progress()->add_ended();
  ended->set_request_id(request_id);
  ended->set_num_ended(num_ended);
}

void AttachProtocol::StateChanged() {
  if (ready_sent_ || identity_.rank > 0) return;
  const ExecutorState state = executor_.State();
  if (state.ready) {
    *Queue().mutable_ready()->mutable_model() = ToProto(state.model);
    ready_sent_ = true;
  } else {
    lathe::v1::Progress* progress = Queue().mutable_progress();
    progress->set_bytes_loaded(state.bytes_loaded);
    progress->set_bytes_total(state.bytes_total);
  }
}

void AttachProtocol::QueueHeartbeat() {
  const ExecutorState state = executor_.State();
  lathe::v1::WorkerHeartbeat* heartbeat = Queue().mutable_heartbeat();
  heartbeat->set_progress(state.progress);
  heartbeat->set_is_busy(state.is_busy);
  heartbeat->mutable_counters()->set_train_passes(state.counters.train_passes);
  heartbeat->mutable_counters()->set_generated_tokens(state.counters.generated_tokens);
  if (!state.memory.shares.empty()) *heartbeat->mutable_memory() = ToProto(state.memory);
}

void AttachProtocol::QueueLeaving(const lathe::v1::Leaving& leaving) {
  *Queue().mutable_leaving() = leaving;
}

void AttachProtocol::QueueDone(const lathe::v1::OperationDone& done) {
  *Queue().mutable_done() = done;
}

// Appends a message to the queue. Before Form or Adopt its epoch is 0.
lathe::v1::WorkerMessage& AttachProtocol::Queue() {
  lathe::v1::WorkerMessage& message = outgoing_.emplace_back();
  message.set_epoch(is_attached_ ? epoch_ : 0);
  return message;
}

lathe::v1::WorkerMessage& AttachProtocol::QueueAnswer() {
  return is_attached_ ? Queue() : held_answers_.emplace_back();
}

std::optional<lathe::v1::WorkerMessage> AttachProtocol::PopOutgoing() {
  if (outgoing_.empty()) return std::nullopt;
  lathe::v1::WorkerMessage message = std::move(outgoing_.front());
  outgoing_.pop_front();
  std::vector<lathe::v1::WorkerMessage> pieces = SplitMessage(std::move(message));
  // The other pieces go to the front, so that pieces of one message stay together and in order.
  outgoing_.insert(outgoing_.begin(), std::make_move_iterator(pieces.begin() + 1),
                   std::make_move_iterator(pieces.end()));
  return std::move(pieces.front());
}

}  // namespace lathe::worker
