// The part of Dispatcher that sends the core's commands.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "services/engine/dispatcher/dispatcher.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

v1::EngineMessage StreamSampleMessage(int64_t epoch, const std::string& request_id) {
  v1::EngineMessage message;
  message.set_epoch(epoch);
  message.mutable_stream_sample()->set_request_id(request_id);
  return message;
}

}  // namespace

void Dispatcher::Send(SendToWorker command) {
  if (const auto* const die = std::get_if<SendDie>(&command.command)) Kill(command, die->reason);
  HeldBodies held = encoder_.HoldBodies(command.command);
  std::shared_ptr<WorkerStream> stream;
  bool is_pushed = false;
  {
    absl::MutexLock lock(&mu_);
    Worker* const worker = FindWorker(command);
    if (worker == nullptr) return;
    worker->epoch = command.epoch;
    stream = worker->stream;
    GroupSender& sender = *senders_.at(command.group);
    is_pushed = sender.TryPush([this, stream, command = std::move(command),
                                held = std::move(held)] { SendNow(*stream, command, held); });
  }
  if (is_pushed) return;
  // The worker attaches again, and the core then sends everything that is unfinished.
  stream->End(absl::ResourceExhaustedError("too many commands wait for this worker"));
}

void Dispatcher::Kill(const SendToWorker& command, const std::string& reason) {
  int64_t pid = 0;
  {
    absl::MutexLock lock(&mu_);
    const Worker* const worker = FindWorker(command);
    if (worker == nullptr) return;
    pid = worker->pid;
  }
  supervisors_.Kill(command.group, command.rank, pid, reason);
}

void Dispatcher::SendNow(WorkerStream& stream, const SendToWorker& command,
                         const HeldBodies& held) {
  if (stream.has_ended()) return;
  const bool is_ack = std::holds_alternative<SendAck>(command.command);
  FailPoint(is_ack ? "engine.ack.before" : "engine.dispatch.before");
  std::vector<v1::EngineMessage> messages =
      encoder_.Encode(command.epoch, command.command, held,
                      [&](const std::string& request_id, const absl::Status& status) {
                        OnLostBody(command, request_id, status);
                      });
  const auto* const load = std::get_if<SendLoadVersion>(&command.command);
  if (load != nullptr && !load->source_group.empty()) {
    *messages[0].mutable_load_version()->mutable_source() = VersionAddressOf(load->source_group);
  }
  stream.Send(std::move(messages));
  FailPoint(is_ack ? "engine.ack.after" : "engine.dispatch.after");
  if (command.rank > 0 || !std::holds_alternative<AdoptGroup>(command.command)) return;
  // The worker may run samples from before this engine led, and streams for them may have opened
  // since.
  for (const std::string& request_id : runtime_.streams().WantedIds()) {
    stream.Send({StreamSampleMessage(command.epoch, request_id)});
  }
}

v1::VersionAddress Dispatcher::VersionAddressOf(const std::string& group) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find({group, 0});
  return found == workers_.end() ? v1::VersionAddress() : found->second.version_address;
}

// Queued behind the commands. A Sample before it may have left without the mark that asks for
// tokens.
void Dispatcher::StreamSample(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  for (const auto& [rank, worker] : workers_) {
    if (rank.second > 0 || worker.epoch == 0) continue;
    // A full queue ends the stream with its next command. The result then has all tokens.
    senders_.at(rank.first)->TryPush([stream = worker.stream, epoch = worker.epoch, request_id] {
      stream->Send({StreamSampleMessage(epoch, request_id)});
    });
  }
}

void Dispatcher::OnLostBody(const SendToWorker& command, const std::string& request_id,
                            const absl::Status& status) {
  LogError("a request's body cannot be read",
           {{"request_id", request_id}, {"error", status.message()}});
  if (absl::IsUnavailable(status)) {
    PostIfCurrent(command, BodyUnavailable{command.group, command.epoch, request_id});
    return;
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
  const std::string result_id = runtime_.results().Hold(EncodeResult(result));
  done.result_id = result_id;
  if (!PostIfCurrent(command, std::move(done))) runtime_.results().Forget(result_id);
}

// Posts under the lock, so that the core sees the event before it sees the next stream.
bool Dispatcher::PostIfCurrent(const SendToWorker& command, EventBody event) {
  absl::MutexLock lock(&mu_);
  if (FindWorker(command) == nullptr) return false;
  runtime_.Post(std::move(event));
  return true;
}

Dispatcher::Worker* Dispatcher::FindWorker(const SendToWorker& command) {
  const auto found = workers_.find({command.group, command.rank});
  const bool is_current = found != workers_.end() && found->second.stream_id == command.stream_id;
  return is_current ? &found->second : nullptr;
}

void Dispatcher::RemoveEndedSenders() {
  std::vector<std::unique_ptr<GroupSender>> ended;  // destroyed without the lock
  absl::MutexLock lock(&mu_);
  const auto first = std::stable_partition(
      closed_senders_.begin(), closed_senders_.end(),
      [](const std::unique_ptr<GroupSender>& sender) { return !sender->has_ended(); });
  std::move(first, closed_senders_.end(), std::back_inserter(ended));
  closed_senders_.erase(first, closed_senders_.end());
}

}  // namespace lathe::engine
