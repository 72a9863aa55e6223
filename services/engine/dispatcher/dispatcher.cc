#include "services/engine/dispatcher/dispatcher.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/version.h"
#include "services/engine/dispatcher/report_decoder.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

constexpr absl::Duration kBeatPeriod = absl::Seconds(2);
// 15 s at least: a beat counts as silent when nothing came since the last one.
constexpr int kMaxSilentBeats = 8;

v1::EngineMessage HeartbeatMessage(int64_t term) {
  v1::EngineMessage message;
  message.mutable_heartbeat()->set_term(term);
  return message;
}

v1::EngineMessage StreamSampleMessage(int64_t epoch, const std::string& request_id) {
  v1::EngineMessage message;
  message.set_epoch(epoch);
  message.mutable_stream_sample()->set_request_id(request_id);
  return message;
}

}  // namespace

Dispatcher::Dispatcher(Runtime& runtime, std::string secret)
    : runtime_(runtime),
      secret_(std::move(secret)),
      encoder_(runtime.bodies(), runtime.streams(), runtime.checkpoints_dir()),
      heartbeat_("engine-beat", kBeatPeriod, [this] { Beat(); }) {}

grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>* Dispatcher::Attach(
    grpc::CallbackServerContext*) {
  std::shared_ptr<WorkerStream> stream = WorkerStream::Start(*this);
  absl::MutexLock lock(&mu_);
  return (streams_[stream.get()] = stream).get();
}

void Dispatcher::Send(const SendToWorker& command) {
  const std::shared_ptr<WorkerStream> stream = StreamFor(command);
  if (!stream) return;
  const bool is_ack = std::holds_alternative<SendAck>(command.command);
  FailPoint(is_ack ? "engine.ack.before" : "engine.dispatch.before");
  stream->Send(encoder_.Encode(command.epoch, command.command,
                               [&](const std::string& request_id, const absl::Status& status) {
                                 OnLostBody(command, request_id, status);
                               }));
  FailPoint(is_ack ? "engine.ack.after" : "engine.dispatch.after");
  if (!std::holds_alternative<AdoptGroup>(command.command)) return;
  // Of what it runs since an earlier engine, streams have come that it knows nothing of.
  for (const std::string& request_id : runtime_.streams().WantedIds()) {
    stream->Send({StreamSampleMessage(command.epoch, request_id)});
  }
}

void Dispatcher::StreamSample(const std::string& request_id) {
  std::vector<std::pair<std::shared_ptr<WorkerStream>, int64_t>> told;  // with the epoch
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [group, worker] : workers_) {
      if (worker.epoch > 0) told.emplace_back(worker.stream, worker.epoch);
    }
  }
  for (const auto& [stream, epoch] : told) stream->Send({StreamSampleMessage(epoch, request_id)});
}

void Dispatcher::OnLostBody(const SendToWorker& command, const std::string& request_id,
                            const absl::Status& status) {
  LogError("a request's body cannot be read",
           {{"request_id", request_id}, {"error", status.message()}});
  if (absl::IsUnavailable(status)) {
    return runtime_.Post(BodyUnavailable{command.group, command.epoch, request_id});
  }
  const ErrorInfo error{.status = absl::StatusCode::kDataLoss,
                        .code = "body_lost",
                        .field = "",
                        .message = "the request's stored body cannot be read"};
  MakeResult result;
  result.kind = std::holds_alternative<SendSample>(command.command)
                    ? OperationKind::kSample
                    : OperationKind::kForwardBackward;
  result.error = error;
  WorkerDone done;
  done.group = command.group;
  done.epoch = command.epoch;
  done.request_id = request_id;
  done.error = error;
  done.result_id = runtime_.results().Hold(EncodeResult(result));
  runtime_.Post(std::move(done));
}

std::vector<WorkerStatus> Dispatcher::Statuses() {
  absl::MutexLock lock(&mu_);
  std::vector<WorkerStatus> statuses;
  for (const auto& [group, worker] : workers_) statuses.push_back(worker.status);
  return statuses;
}

void Dispatcher::EndStreams() {
  std::map<const WorkerStream*, std::shared_ptr<WorkerStream>> streams;
  {
    absl::MutexLock lock(&mu_);
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    stream->End(absl::UnavailableError("the engine is stopping"));
  }
}

void Dispatcher::OnMessage(const std::shared_ptr<WorkerStream>& stream,
                           const v1::WorkerMessage& message) {
  const std::string group = GroupOf(stream.get());
  if (!group.empty() && !message.has_hello()) return OnReport(group, message);
  if (!message.has_hello()) {
    return stream->End(absl::FailedPreconditionError("the first message must be hello"));
  }
  const absl::Status status = CheckHello(message.hello());
  if (!status.ok()) {
    LogWarn("worker refused", {{"group", message.hello().group()}, {"error", status.message()}});
    return stream->End(status);
  }
  OnHello(stream, message.hello());
}

absl::Status Dispatcher::CheckHello(const v1::Hello& hello) const {
  if (!EqualInConstantTime(hello.secret(), secret_)) {
    return absl::UnauthenticatedError("the worker's secret is not that of this data directory");
  }
  if (hello.lathe_version() != std::string(kVersion)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the worker has version %s, the engine has %s", hello.lathe_version(),
                        std::string(kVersion)));
  }
  if (hello.rank() != 0 || hello.world() != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank %d of world %d, groups have one rank", hello.rank(), hello.world()));
  }
  if (hello.group().empty() || hello.process_id().empty()) {
    return absl::InvalidArgumentError("hello names no group or no process");
  }
  return absl::OkStatus();
}

void Dispatcher::OnHello(const std::shared_ptr<WorkerStream>& stream, const v1::Hello& hello) {
  Worker replaced;
  WorkerAttached attached = ToEvent(hello);
  {
    absl::MutexLock lock(&mu_);
    Worker& worker = workers_[hello.group()];
    replaced = std::exchange(worker, Worker{});
    worker.stream = stream;
    worker.stream_id = attached.stream_id = ++num_streams_;
    worker.status.group = hello.group();
    worker.status.base_model = hello.base_model();
    worker.status.device = hello.device();
    worker.status.ready = hello.has_ready();
    // The core learns of streams in the order in which they took their places.
    if (replaced.stream && replaced.stream != stream) {
      runtime_.Post(WorkerDetached{.group = hello.group()});
    }
    runtime_.Post(std::move(attached));
  }
  if (replaced.stream && replaced.stream != stream) {
    replaced.stream->End(absl::AbortedError("another worker attached to the group"));
  }
  LogInfo("worker attached", {{"group", hello.group()},
                              {"device", hello.device()},
                              {"epoch", hello.epoch()},
                              {"process_id", hello.process_id()}});
}

void Dispatcher::OnReport(const std::string& group, const v1::WorkerMessage& message) {
  UpdateStatus(group, message);
  switch (message.message_case()) {
    case v1::WorkerMessage::kReady:
      LogInfo("worker ready", {{"group", group}, {"base_model", message.ready().model().name()}});
      runtime_.Post(WorkerReady{.group = group, .model = ToReady(message.ready().model())});
      return;
    case v1::WorkerMessage::kDone:
      return OnDone(group, message.epoch(), message.done());
    case v1::WorkerMessage::kSampleProgress:
      return runtime_.streams().Push(ToTokens(message.sample_progress()));
    case v1::WorkerMessage::kVersionFailed:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_failed()));
      return;
    case v1::WorkerMessage::kSnapshotDone:
      runtime_.Post(ToEvent(group, message.epoch(), message.snapshot_done()));
      return;
    case v1::WorkerMessage::kVersionSaved:
      runtime_.Post(ToEvent(group, message.epoch(), message.version_saved()));
      return;
    default:
      return;  // progress, heartbeats and what only the status shows
  }
}

void Dispatcher::OnDone(const std::string& group, int64_t epoch, const v1::OperationDone& done) {
  FailPoint("engine.result.received");
  std::string result_id = runtime_.results().Hold(done.result().SerializeAsString());
  runtime_.Post(ToEvent(group, epoch, done, std::move(result_id)));
}

void Dispatcher::UpdateStatus(const std::string& group, const v1::WorkerMessage& message) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(group);
  if (found == workers_.end()) return;
  found->second.silent_beats = 0;
  WorkerStatus& status = found->second.status;
  if (message.has_ready()) {
    status.ready = true;
    status.base_model = message.ready().model().name();
    status.progress.clear();
  } else if (message.has_progress() && message.progress().bytes_total() > 0) {
    const v1::Progress& progress = message.progress();
    status.progress =
        absl::StrFormat("%d %% of %.1f GB", 100 * progress.bytes_loaded() / progress.bytes_total(),
                        static_cast<double>(progress.bytes_total()) / 1e9);
  } else if (message.has_heartbeat()) {
    status.train_passes = message.heartbeat().train_passes();
    status.train_tokens = message.heartbeat().train_tokens();
    status.prefill_passes = message.heartbeat().prefill_passes();
    status.decode_passes = message.heartbeat().decode_passes();
    status.generated_tokens = message.heartbeat().generated_tokens();
  }
}

void Dispatcher::OnClosed(const std::shared_ptr<WorkerStream>& stream) {
  absl::MutexLock lock(&mu_);
  const std::string group = FindGroup(stream.get());
  streams_.erase(stream.get());
  if (group.empty()) return;
  workers_.erase(group);
  runtime_.Post(WorkerDetached{.group = group});
  LogWarn("worker detached", {{"group", group}});
}

std::string Dispatcher::GroupOf(const WorkerStream* stream) {
  absl::MutexLock lock(&mu_);
  return FindGroup(stream);
}

std::string Dispatcher::FindGroup(const WorkerStream* stream) const {
  for (const auto& [group, worker] : workers_) {
    if (worker.stream.get() == stream) return group;
  }
  return "";
}

std::shared_ptr<WorkerStream> Dispatcher::StreamFor(const SendToWorker& command) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(command.group);
  if (found == workers_.end() || found->second.stream_id != command.stream_id) return nullptr;
  found->second.epoch = command.epoch;
  return found->second.stream;
}

void Dispatcher::Beat() {
  std::vector<std::shared_ptr<WorkerStream>> alive;
  std::vector<std::shared_ptr<WorkerStream>> silent;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [group, worker] : workers_) {
      (++worker.silent_beats > kMaxSilentBeats ? silent : alive).push_back(worker.stream);
    }
  }
  for (const auto& stream : alive) stream->Send({HeartbeatMessage(runtime_.term())});
  for (const auto& stream : silent) {
    stream->End(absl::DeadlineExceededError("the worker was silent for 15 s"));
  }
}

}  // namespace lathe::engine
