#include "services/engine/rpc/row_convert.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "services/engine/rpc/checkpoint_files.h"

namespace lathe::engine {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;

struct KindWords {
  const char* folder;
  const char* type;
};

KindWords WordsOf(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return {"weights", "training"};
    case CheckpointKind::kSampler:
      return {"sampler_weights", "sampler"};
    case CheckpointKind::kExternal:
      break;
  }
  return {"external_weights", "external"};
}

}  // namespace

google::protobuf::Timestamp ToTimestamp(int64_t nanos) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(nanos / kNanosPerSecond);
  proto.set_nanos(static_cast<int32_t>(nanos % kNanosPerSecond));
  return proto;
}

int64_t ToNanos(const google::protobuf::Timestamp& proto) {
  constexpr int64_t kMaxSeconds = std::numeric_limits<int64_t>::max() / kNanosPerSecond - 1;
  const bool fits = proto.seconds() >= 0 && proto.seconds() <= kMaxSeconds && proto.nanos() >= 0 &&
                    proto.nanos() < kNanosPerSecond;
  return fits ? proto.seconds() * kNanosPerSecond + proto.nanos() : -1;
}

void SetMetadata(const Metadata& metadata,
                 google::protobuf::RepeatedPtrField<v1::NamedString>* proto) {
  for (const auto& [name, value] : metadata) {
    v1::NamedString* entry = proto->Add();
    entry->set_name(name);
    entry->set_value(value);
  }
}

v1::Checkpoint ToProto(const CheckpointRow& row, const std::filesystem::path& root) {
  const KindWords words = WordsOf(row.kind);
  v1::Checkpoint proto;
  proto.set_checkpoint_id(absl::StrCat(words.folder, "/", row.name));
  proto.set_checkpoint_type(words.type);
  *proto.mutable_time() = ToTimestamp(row.created_at);
  proto.set_tinker_path(row.tinker_path);
  proto.set_size_bytes(row.size_bytes);
  proto.set_public_(row.is_public);
  SetMetadata(row.user_metadata, proto.mutable_user_metadata());
  if (row.expires_at != 0) *proto.mutable_expires_at() = ToTimestamp(row.expires_at);
  proto.set_missing(AreFilesMissing(root, row));
  return proto;
}

v1::Run ToProto(const ModelRow& row, const std::string& owner_name) {
  v1::Run proto;
  proto.set_training_run_id(row.model_id);
  proto.set_base_model(row.base_model);
  proto.set_model_owner(owner_name);
  proto.set_is_lora(true);
  proto.set_lora_rank(row.lora.rank);
  *proto.mutable_last_request_time() =
      ToTimestamp(row.last_request_at != 0 ? row.last_request_at : row.created_at);
  proto.set_corrupted(row.state == ModelState::kLost);
  SetMetadata(row.user_metadata, proto.mutable_user_metadata());
  return proto;
}

v1::ServedModel ToProto(const BaseModelRow& row) {
  v1::ServedModel proto;
  proto.set_name(row.name);
  proto.set_max_context_length(row.max_context_length);
  proto.set_trainable(true);
  proto.set_sampleable(true);
  proto.set_tokenizer_id(row.tokenizer_id);
  proto.set_max_lora_rank(row.max_lora_rank);
  return proto;
}

}  // namespace lathe::engine
