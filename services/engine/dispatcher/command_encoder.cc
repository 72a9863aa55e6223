#include "services/engine/dispatcher/command_encoder.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "google/protobuf/message_lite.h"
#include "libs/common/json/json.h"
#include "services/engine/core/state/lora_proto.h"
#include "services/engine/dispatcher/pieces.h"

namespace lathe::engine {

std::string ManifestJson(const CheckpointRow& row, int64_t term) {
  Json metadata = Json::object();
  for (const auto& [name, value] : row.user_metadata) metadata[name] = value;
  return ToJsonText({{"tinker_path", row.tinker_path},
                     {"name", row.name},
                     {"tenant_id", row.tenant_id},
                     {"engine_term", term},
                     {"created_at_ns", row.created_at},
                     {"user_metadata", metadata}});
}

std::string ManifestJson(const std::string& tenant_id, int64_t term) {
  return ToJsonText({{"tenant_id", tenant_id}, {"engine_term", term}});
}

namespace {

// Serializes a command as pieces. Protobuf merges concatenated encodings of one message, so fields
// can be appended to a body without parsing it.
std::vector<v1::EngineMessage> Finish(int64_t epoch, int field_number, MessageParts payload) {
  v1::EngineMessage envelope;
  envelope.set_epoch(epoch);
  MessageParts serialized;
  serialized.Add(envelope.SerializeAsString());
  serialized.AddMessage(field_number, std::move(payload));
  return SplitIntoPieces(epoch, serialized);
}

// Appends the fields that the engine fixed on acceptance to a body. `body` must outlive the parts.
MessageParts Fixed(const std::string& body, const google::protobuf::MessageLite& fixed) {
  MessageParts parts;
  parts.AddBorrowed(body);
  parts.Add(fixed.SerializeAsString());
  return parts;
}

}  // namespace

HeldBodies CommandEncoder::HoldBodies(const WorkerCommand& command) const {
  HeldBodies held;
  const auto hold = [&](const std::string& body_id) {
    if (SharedBytes bytes = bodies_.InMemory(body_id)) held.emplace(body_id, std::move(bytes));
  };
  if (const auto* const batch = std::get_if<SendTrainBatch>(&command)) {
    for (const SendTrainBatch::Item& item : batch->items) hold(item.body_id);
  } else if (const auto* const sample = std::get_if<SendSample>(&command)) {
    hold(sample->body_id);
  }
  return held;
}

absl::StatusOr<SharedBytes> CommandEncoder::BodyOf(const std::string& body_id,
                                                   const HeldBodies& held) const {
  const auto found = held.find(body_id);
  if (found != held.end()) return found->second;
  return bodies_.Read(body_id);
}

std::vector<v1::EngineMessage> CommandEncoder::Encode(int64_t epoch, const WorkerCommand& command,
                                                      const HeldBodies& held,
                                                      const OnLostBody& on_lost_body) const {
  return std::visit(
      [&](const auto& one) -> std::vector<v1::EngineMessage> {
        using Command = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Command, SendTrainBatch>) {
          return EncodeTrainBatch(epoch, one, held, on_lost_body);
        } else if constexpr (std::is_same_v<Command, SendSample>) {
          return EncodeSample(epoch, one, held, on_lost_body);
        } else {
          std::vector<v1::EngineMessage> messages(1);
          messages[0].set_epoch(epoch);
          Fill(one, messages[0]);
          return messages;
        }
      },
      command);
}

std::vector<v1::EngineMessage> CommandEncoder::EncodeTrainBatch(
    int64_t epoch, const SendTrainBatch& batch, const HeldBodies& held,
    const OnLostBody& on_lost_body) const {
  MessageParts items;
  std::vector<SharedBytes> bodies;
  for (const SendTrainBatch::Item& item : batch.items) {
    absl::StatusOr<SharedBytes> body = BodyOf(item.body_id, held);
    if (!body.ok()) {
      on_lost_body(item.request_id, body.status());
      continue;
    }
    v1::ForwardBackwardRequest fixed;
    fixed.set_seq_id(item.seq_id);
    v1::TrainItem head;
    head.set_request_id(item.request_id);
    MessageParts encoded;
    encoded.Add(head.SerializeAsString());
    encoded.AddMessage(v1::TrainItem::kRequestFieldNumber, Fixed(**body, fixed));
    items.AddMessage(v1::TrainBatch::kItemsFieldNumber, std::move(encoded));
    bodies.push_back(*std::move(body));
  }
  if (items.empty()) return {};
  return Finish(epoch, v1::EngineMessage::kTrainBatchFieldNumber, std::move(items));
}

std::vector<v1::EngineMessage> CommandEncoder::EncodeSample(int64_t epoch, const SendSample& sample,
                                                            const HeldBodies& held,
                                                            const OnLostBody& on_lost_body) const {
  const absl::StatusOr<SharedBytes> body = BodyOf(sample.body_id, held);
  if (!body.ok()) {
    on_lost_body(sample.request_id, body.status());
    return {};
  }
  v1::SampleRequest fixed;
  fixed.mutable_params()->set_seed(sample.seed);
  fixed.mutable_params()->set_max_tokens(sample.max_tokens);
  v1::Sample head;
  head.set_request_id(sample.request_id);
  head.set_tenant_id(sample.tenant_id);
  head.set_version_id(sample.version_id);
  head.set_streamed(streams_.IsWanted(sample.request_id));
  MessageParts encoded;
  encoded.Add(head.SerializeAsString());
  encoded.AddMessage(v1::Sample::kRequestFieldNumber, Fixed(**body, fixed));
  return Finish(epoch, v1::EngineMessage::kSampleFieldNumber, std::move(encoded));
}

void CommandEncoder::Fill(const FormGroup& command, v1::EngineMessage& message) const {
  message.mutable_form()->set_epoch(message.epoch());
  message.mutable_form()->set_term(command.term);
  if (!command.rendezvous) return;
  v1::RendezvousPoint* const rendezvous = message.mutable_form()->mutable_rendezvous();
  rendezvous->set_session(command.rendezvous->session);
  rendezvous->set_address(command.rendezvous->address);
  rendezvous->set_port(command.rendezvous->port);
}

void CommandEncoder::Fill(const AdoptGroup& command, v1::EngineMessage& message) const {
  message.mutable_adopt()->set_epoch(message.epoch());
  message.mutable_adopt()->set_term(command.term);
}

void CommandEncoder::Fill(const SendOptimStep& command, v1::EngineMessage& message) const {
  v1::OptimStep* proto = message.mutable_optim_step();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.model_id);
  proto->set_seq_id(command.seq_id);
  proto->set_expected_applied_seq(command.expected_applied_seq);
  proto->mutable_window()->Assign(command.window.begin(), command.window.end());
  proto->mutable_adam_params()->ParseFromString(command.adam_params);
}

void CommandEncoder::Fill(const SendCreateAdapter& command, v1::EngineMessage& message) const {
  v1::CreateAdapter* proto = message.mutable_create_adapter();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.model_id);
  FillLora(command.lora, *proto->mutable_lora());
}

void CommandEncoder::Fill(const SendLoadAdapter& command, v1::EngineMessage& message) const {
  v1::LoadAdapter* proto = message.mutable_load_adapter();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.model_id);
  proto->set_seq_id(command.seq_id);
  proto->set_dir(command.dir);
  proto->set_with_optimizer(command.with_optimizer);
}

void CommandEncoder::Fill(const SendDropAdapter& command, v1::EngineMessage& message) const {
  message.mutable_drop_adapter()->set_request_id(command.request_id);
  message.mutable_drop_adapter()->set_model_id(command.model_id);
}

void CommandEncoder::Fill(const SendClearGradient& command, v1::EngineMessage& message) const {
  message.mutable_clear_gradient()->set_model_id(command.model_id);
}

void CommandEncoder::Fill(const SendSaveCheckpoint& command, v1::EngineMessage& message) const {
  v1::SaveCheckpoint* proto = message.mutable_save_checkpoint();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.row.model_id);
  proto->set_seq_id(command.seq_id);
  proto->set_for_sampler(command.row.kind == CheckpointKind::kSampler);
  proto->set_dir(command.row.dir);
  proto->set_manifest_json(ManifestJson(command.row, command.term));
  proto->set_external(command.row.kind == CheckpointKind::kExternal);
  proto->mutable_age_recipients()->Assign(command.age_recipients.begin(),
                                          command.age_recipients.end());
}

void CommandEncoder::Fill(const SendPublishVersion& command, v1::EngineMessage& message) const {
  v1::PublishVersion* proto = message.mutable_publish_version();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.model_id);
  proto->set_seq_id(command.seq_id);
  proto->set_version_id(command.version_id);
  proto->set_is_inflight(command.is_inflight);
}

void CommandEncoder::Fill(const SendLoadVersion& command, v1::EngineMessage& message) const {
  v1::LoadVersion* proto = message.mutable_load_version();
  proto->set_version_id(command.version_id);
  proto->set_inflight_seq_id(command.inflight_seq_id);
  if (command.source_group.empty()) {
    proto->set_dir(command.dir);
  } else {
    proto->set_source_seq_id(command.source_seq_id);
  }
}

void CommandEncoder::Fill(const SendDropVersion& command, v1::EngineMessage& message) const {
  message.mutable_drop_version()->set_version_id(command.version_id);
}

void CommandEncoder::Fill(const SendSaveVersion& command, v1::EngineMessage& message) const {
  v1::SaveVersion* proto = message.mutable_save_version();
  proto->set_version_id(command.version_id);
  proto->set_dir(command.dir);
  proto->set_manifest_json(ManifestJson(command.tenant_id, command.term));
}

void CommandEncoder::Fill(const SendServeVersion& command, v1::EngineMessage& message) const {
  v1::ServeVersion* proto = message.mutable_serve_version();
  proto->set_version_id(command.version_id);
  proto->set_reader(command.reader);
  proto->set_num_reads(command.num_reads);
}

void CommandEncoder::Fill(const SendSnapshot& command, v1::EngineMessage& message) const {
  v1::Snapshot* proto = message.mutable_snapshot();
  proto->set_snapshot_id(command.snapshot_id);
  proto->set_model_id(command.model_id);
  proto->set_dir(command.snapshot_id);
  proto->set_manifest_json(ManifestJson(command.tenant_id, command.term));
}

void CommandEncoder::Fill(const SendRestoreAdapter& command, v1::EngineMessage& message) const {
  v1::RestoreAdapter* proto = message.mutable_restore_adapter();
  proto->set_request_id(command.request_id);
  proto->set_model_id(command.model_id);
  proto->set_dir(command.snapshot_id);
}

void CommandEncoder::Fill(const SendCancel& command, v1::EngineMessage& message) const {
  message.mutable_cancel()->set_request_id(command.request_id);
}

void CommandEncoder::Fill(const SendAck& command, v1::EngineMessage& message) const {
  message.mutable_ack()->mutable_request_ids()->Assign(command.request_ids.begin(),
                                                       command.request_ids.end());
}

void CommandEncoder::Fill(const SendDie& command, v1::EngineMessage& message) const {
  message.mutable_die()->set_reason(command.reason);
}

}  // namespace lathe::engine
