#include "services/worker/rpc/command_conversion.h"

#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/rpc/tensor_conversion.h"
#include "services/worker/rpc/train_conversion.h"

namespace lathe::worker {
namespace {

AdamParams ToAdamParams(const lathe::v1::AdamParams& proto) {
  AdamParams adam;
  for (const AdamField& field : kAdamFields) {
    const auto* from = proto.GetDescriptor()->FindFieldByName(std::string(field.name));
    adam.*field.number = proto.GetReflection()->GetDouble(proto, from);
  }
  return adam;
}

SamplingParams ToSamplingParams(const lathe::v1::SamplingParams& proto) {
  SamplingParams params;
  params.max_tokens = proto.max_tokens();
  params.temperature = proto.temperature();
  params.top_k = proto.top_k();
  params.top_p = proto.top_p();
  params.min_p = proto.min_p();
  params.seed = proto.seed();
  if (proto.has_stop_tokens()) {
    params.stop_tokens.assign(proto.stop_tokens().values().begin(),
                              proto.stop_tokens().values().end());
    params.ignore_eos = params.stop_tokens.empty();
  } else if (proto.has_stop_strings()) {
    params.stop_strings.assign(proto.stop_strings().values().begin(),
                               proto.stop_strings().values().end());
    params.ignore_eos = params.stop_strings.empty();
  }
  return params;
}

Incoming Train(const lathe::v1::TrainItem& item) {
  const lathe::v1::ForwardBackwardRequest& proto = item.request();
  Incoming incoming{
      .request_id = item.request_id(),
      .info = {.kind = proto.forward_only() ? lathe::v1::OPERATION_KIND_FORWARD
                                            : lathe::v1::OPERATION_KIND_FORWARD_BACKWARD,
               .model_id = proto.model_id(),
               .output_columns = {}},
      .command = absl::StatusOr<Command>()};
  absl::StatusOr<TrainRequest> request = ToTrainRequest(item);
  if (!request.ok()) {
    incoming.command = request.status();
    return incoming;
  }
  for (const TrainDatum& datum : request->data) {
    incoming.info.output_columns.push_back(datum.targets_2d ? datum.num_targets : 0);
  }
  TrainBatch batch;
  batch.requests.push_back(*std::move(request));
  incoming.command = Command(std::move(batch));
  return incoming;
}

// Wraps an operation that expects an answer.
template <typename Op>
Incoming Answered(lathe::v1::OperationKind kind, Op op) {
  return {.request_id = op.request_id,
          .info = {.kind = kind, .model_id = op.model_id, .output_columns = {}},
          .command = Command(std::move(op))};
}

Incoming Unanswered(Command command) {
  return {.request_id = {}, .info = {}, .command = std::move(command)};
}

CheckpointKind KindOf(const lathe::v1::SaveCheckpoint& proto) {
  if (proto.external()) return CheckpointKind::kExternal;
  return proto.for_sampler() ? CheckpointKind::kSampler : CheckpointKind::kTraining;
}

lathe::v1::OperationKind OperationOf(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return lathe::v1::OPERATION_KIND_SAVE_WEIGHTS;
    case CheckpointKind::kSampler:
      return lathe::v1::OPERATION_KIND_SAVE_WEIGHTS_FOR_SAMPLER;
    case CheckpointKind::kExternal:
    case CheckpointKind::kSnapshot:  // never in a SaveCheckpoint
      break;
  }
  return lathe::v1::OPERATION_KIND_SAVE_WEIGHTS_EXTERNAL;
}

Incoming Save(const lathe::v1::SaveCheckpoint& proto) {
  const CheckpointKind kind = KindOf(proto);
  return Answered(OperationOf(kind),
                  SaveCheckpoint{.request_id = proto.request_id(),
                                 .model_id = proto.model_id(),
                                 .seq_id = proto.seq_id(),
                                 .kind = kind,
                                 .dir = proto.dir(),
                                 .manifest_json = proto.manifest_json(),
                                 .age_recipients = {proto.age_recipients().begin(),
                                                    proto.age_recipients().end()}});
}

Incoming Step(const lathe::v1::OptimStep& proto) {
  return Answered(lathe::v1::OPERATION_KIND_OPTIM_STEP,
                  OptimStep{.request_id = proto.request_id(),
                            .model_id = proto.model_id(),
                            .seq_id = proto.seq_id(),
                            .expected_applied_seq = proto.expected_applied_seq(),
                            .window = {proto.window().begin(), proto.window().end()},
                            .adam = ToAdamParams(proto.adam_params())});
}

Incoming Load(const lathe::v1::LoadAdapter& proto) {
  return Answered(lathe::v1::OPERATION_KIND_LOAD_WEIGHTS,
                  LoadAdapter{.request_id = proto.request_id(),
                              .model_id = proto.model_id(),
                              .seq_id = proto.seq_id(),
                              .dir = proto.dir(),
                              .with_optimizer = proto.with_optimizer()});
}

Incoming Restore(const lathe::v1::RestoreAdapter& proto) {
  return Answered(
      lathe::v1::OPERATION_KIND_LOAD_WEIGHTS,
      RestoreAdapter{
          .request_id = proto.request_id(), .model_id = proto.model_id(), .dir = proto.dir()});
}

Command ToCommand(const lathe::v1::Snapshot& proto) {
  return Snapshot{.snapshot_id = proto.snapshot_id(),
                  .model_id = proto.model_id(),
                  .dir = proto.dir(),
                  .manifest_json = proto.manifest_json()};
}

Command ToCommand(const lathe::v1::LoadVersion& proto) {
  LoadVersion command{.version_id = proto.version_id(),
                      .dir = proto.dir(),
                      .inflight_seq_id = proto.inflight_seq_id()};
  if (proto.has_source()) {
    command.source = {.address = proto.source().address(), .token = proto.source().token()};
    command.source_seq_id = proto.source_seq_id();
  }
  return command;
}

Command ToCommand(const lathe::v1::ServeVersion& proto) {
  return ServeVersion{
      .version_id = proto.version_id(), .reader = proto.reader(), .num_reads = proto.num_reads()};
}

Command ToCommand(const lathe::v1::SaveVersion& proto) {
  return SaveVersion{
      .version_id = proto.version_id(), .dir = proto.dir(), .manifest_json = proto.manifest_json()};
}

Incoming ToIncoming(const lathe::v1::Sample& proto) {
  Incoming incoming{
      .request_id = proto.request_id(),
      .info = {.kind = lathe::v1::OPERATION_KIND_SAMPLE, .model_id = {}, .output_columns = {}},
      .command = absl::StatusOr<Command>()};
  absl::StatusOr<SampleRequest> request = ToSampleRequest(proto);
  if (request.ok()) {
    incoming.command = Command(*std::move(request));
  } else {
    incoming.command = request.status();
  }
  return incoming;
}

}  // namespace

absl::StatusOr<SampleRequest> ToSampleRequest(const lathe::v1::Sample& sample) {
  const lathe::v1::SampleRequest& proto = sample.request();
  SampleRequest request;
  request.request_id = sample.request_id();
  request.tenant_id = sample.tenant_id();
  request.version_id = sample.version_id();
  ASSIGN_OR_RETURN(request.prompt, ReadTokens(proto.prompt()));
  request.num_samples = proto.num_samples();
  request.params = ToSamplingParams(proto.params());
  request.prompt_logprobs = proto.prompt_logprobs();
  request.topk_prompt_logprobs = proto.topk_prompt_logprobs();
  request.prompt_logprobs_last_n = proto.prompt_logprobs_last_n();
  request.prompt_alt_tokens_k = proto.prompt_alt_tokens_k();
  request.topk_sample_logprobs = proto.topk_sample_logprobs();
  if (proto.has_target_prompt_logprobs()) {
    ASSIGN_OR_RETURN(request.targets, ReadTargets(proto.target_prompt_logprobs(),
                                                  static_cast<int64_t>(request.prompt.size())));
  }
  request.streamed = sample.streamed();
  return request;
}

std::vector<Incoming> ToCommands(const lathe::v1::EngineMessage& message) {
  using Message = lathe::v1::EngineMessage;
  switch (message.message_case()) {
    case Message::kTrainBatch: {
      std::vector<Incoming> commands;
      for (const lathe::v1::TrainItem& item : message.train_batch().items()) {
        commands.push_back(Train(item));
      }
      return commands;
    }
    case Message::kOptimStep:
      return {Step(message.optim_step())};
    case Message::kCreateAdapter:
      return {Answered(
          lathe::v1::OPERATION_KIND_CREATE_MODEL,
          CreateAdapter{message.create_adapter().request_id(), message.create_adapter().model_id(),
                        ToLoraSpec(message.create_adapter().lora())})};
    case Message::kLoadAdapter:
      return {Load(message.load_adapter())};
    case Message::kDropAdapter:
      return {Answered(
          lathe::v1::OPERATION_KIND_UNLOAD_MODEL,
          DropAdapter{message.drop_adapter().request_id(), message.drop_adapter().model_id()})};
    case Message::kClearGradient:
      return {Unanswered(ClearGradient{message.clear_gradient().model_id()})};
    case Message::kSaveCheckpoint:
      return {Save(message.save_checkpoint())};
    case Message::kPublishVersion:
      return {Answered(
          lathe::v1::OPERATION_KIND_SAVE_WEIGHTS_FOR_SAMPLER,
          PublishVersion{message.publish_version().request_id(),
                         message.publish_version().model_id(), message.publish_version().seq_id(),
                         message.publish_version().version_id(),
                         message.publish_version().is_inflight()})};
    case Message::kLoadVersion:
      return {Unanswered(ToCommand(message.load_version()))};
    case Message::kSaveVersion:
      return {Unanswered(ToCommand(message.save_version()))};
    case Message::kServeVersion:
      return {Unanswered(ToCommand(message.serve_version()))};
    case Message::kSnapshot:
      return {Unanswered(ToCommand(message.snapshot()))};
    case Message::kRestoreAdapter:
      return {Restore(message.restore_adapter())};
    case Message::kDropVersion:
      return {Unanswered(DropVersion{message.drop_version().version_id()})};
    case Message::kSample:
      return {ToIncoming(message.sample())};
    case Message::kCancel:
      return {Unanswered(Cancel{message.cancel().request_id()})};
    case Message::kStreamSample:
      return {Unanswered(StreamSample{message.stream_sample().request_id()})};
    default:
      return {};
  }
}

absl::StatusOr<Command> DecodeCommand(const std::string& encoded) {
  lathe::v1::EngineMessage message;
  if (!message.ParseFromString(encoded)) {
    return absl::InternalError(
        absl::StrFormat("a command of %d bytes cannot be parsed", encoded.size()));
  }
  std::vector<Incoming> commands = ToCommands(message);
  if (commands.empty()) return absl::InternalError("a message holds no command");
  ASSIGN_OR_RETURN(Command command, std::move(commands.front().command));
  for (size_t i = 1; i < commands.size(); ++i) {
    ASSIGN_OR_RETURN(Command more, std::move(commands[i].command));
    for (TrainRequest& request : std::get<TrainBatch>(more).requests) {
      std::get<TrainBatch>(command).requests.push_back(std::move(request));
    }
  }
  return command;
}

}  // namespace lathe::worker
