// The part of Dispatcher that sends the core's commands.
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

void Dispatcher::Send(const SendToWorker& command) {
  int64_t pid = 0;
  const std::shared_ptr<WorkerStream> stream = StreamFor(command, pid);
  if (!stream) return;
  if (const auto* const die = std::get_if<SendDie>(&command.command)) {
    supervisors_.Kill(command.group, command.rank, pid, die->reason);
  }
  const bool is_ack = std::holds_alternative<SendAck>(command.command);
  FailPoint(is_ack ? "engine.ack.before" : "engine.dispatch.before");
  std::vector<v1::EngineMessage> messages =
      encoder_.Encode(command.epoch, command.command,
                      [&](const std::string& request_id, const absl::Status& status) {
                        OnLostBody(command, request_id, status);
                      });
  const auto* const load = std::get_if<SendLoadVersion>(&command.command);
  if (load != nullptr && !load->source_group.empty()) {
    *messages[0].mutable_load_version()->mutable_source() = VersionAddressOf(load->source_group);
  }
  stream->Send(std::move(messages));
  FailPoint(is_ack ? "engine.ack.after" : "engine.dispatch.after");
  if (command.rank > 0 || !std::holds_alternative<AdoptGroup>(command.command)) return;
  // The worker may run samples from before this engine led, and streams for them may have opened
  // since.
  for (const std::string& request_id : runtime_.streams().WantedIds()) {
    stream->Send({StreamSampleMessage(command.epoch, request_id)});
  }
}

v1::VersionAddress Dispatcher::VersionAddressOf(const std::string& group) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find({group, 0});
  return found == workers_.end() ? v1::VersionAddress() : found->second.version_address;
}

void Dispatcher::StreamSample(const std::string& request_id) {
  std::vector<std::pair<std::shared_ptr<WorkerStream>, int64_t>> receivers;  // with the epoch
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [rank, worker] : workers_) {
      if (rank.second == 0 && worker.epoch > 0) receivers.emplace_back(worker.stream, worker.epoch);
    }
  }
  for (const auto& [stream, epoch] : receivers)
    stream->Send({StreamSampleMessage(epoch, request_id)});
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

std::shared_ptr<WorkerStream> Dispatcher::StreamFor(const SendToWorker& command, int64_t& pid) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find({command.group, command.rank});
  if (found == workers_.end() || found->second.stream_id != command.stream_id) return nullptr;
  found->second.epoch = command.epoch;
  pid = found->second.pid;
  return found->second.stream;
}

}  // namespace lathe::engine
