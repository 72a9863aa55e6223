#include "services/engine/core/state/plan.h"

#include <utility>
#include <variant>
#include <vector>

#include "google/protobuf/repeated_ptr_field.h"
#include "protos/lathe/v1/store.pb.h"
#include "services/engine/core/state/lora_proto.h"

namespace lathe::engine {
namespace {

template <typename T>
using Repeated = google::protobuf::RepeatedPtrField<T>;

void FillMetadata(const Metadata& metadata, Repeated<v1::NamedString>& proto) {
  for (const auto& [name, value] : metadata) {
    v1::NamedString& entry = *proto.Add();
    entry.set_name(name);
    entry.set_value(value);
  }
}

Metadata ToMetadata(const Repeated<v1::NamedString>& proto) {
  Metadata metadata;
  for (const v1::NamedString& entry : proto) metadata.emplace_back(entry.name(), entry.value());
  return metadata;
}

std::vector<std::string> ToStrings(const Repeated<std::string>& proto) {
  return {proto.begin(), proto.end()};
}

void FillArgs(const CreateModelArgs& args, v1::Plan& plan) {
  v1::CreateModelPlan& proto = *plan.mutable_create_model();
  proto.set_base_model(args.base_model);
  FillLora(args.lora, *proto.mutable_lora());
  proto.set_has_seed(args.has_seed);
  FillMetadata(args.user_metadata, *proto.mutable_user_metadata());
}

CreateModelArgs ToArgs(const v1::CreateModelPlan& proto) {
  return {.base_model = proto.base_model(),
          .lora = ToLora(proto.lora()),
          .has_seed = proto.has_seed(),
          .user_metadata = ToMetadata(proto.user_metadata())};
}

void FillArgs(const TrainArgs& args, v1::Plan& plan) {
  plan.mutable_train()->set_batch_bytes(args.batch_bytes);
}

void FillArgs(const OptimStepArgs& args, v1::Plan& plan) { plan.set_adam_params(args.adam_params); }

void FillArgs(const SaveArgs& args, v1::Plan& plan) {
  v1::SavePlan& proto = *plan.mutable_save();
  proto.set_name(args.name);
  if (args.sampling_session_seq_id >= 0) {
    proto.set_sampling_session_seq_id(args.sampling_session_seq_id);
  }
  proto.set_inflight(args.inflight);
  proto.set_ttl_seconds(args.ttl_seconds);
  proto.set_overwrite(args.overwrite);
  FillMetadata(args.user_metadata, *proto.mutable_user_metadata());
  proto.mutable_age_recipients()->Assign(args.age_recipients.begin(), args.age_recipients.end());
}

SaveArgs ToArgs(const v1::SavePlan& proto) {
  return {.name = proto.name(),
          .sampling_session_seq_id =
              proto.has_sampling_session_seq_id() ? proto.sampling_session_seq_id() : -1,
          .inflight = proto.inflight(),
          .ttl_seconds = proto.ttl_seconds(),
          .overwrite = proto.overwrite(),
          .user_metadata = ToMetadata(proto.user_metadata()),
          .age_recipients = ToStrings(proto.age_recipients())};
}

void FillArgs(const LoadArgs& args, v1::Plan& plan) {
  v1::LoadPlan& proto = *plan.mutable_load();
  proto.set_path(args.path);
  proto.set_with_optimizer(args.with_optimizer);
  proto.set_creates_model(args.creates_model);
  proto.set_base_model(args.base_model);
  FillMetadata(args.user_metadata, *proto.mutable_user_metadata());
  if (args.lora_alpha) proto.set_lora_alpha(*args.lora_alpha);
  proto.mutable_target_modules()->Assign(args.target_modules.begin(), args.target_modules.end());
  proto.set_reader_tenant_id(args.reader_tenant_id);
}

LoadArgs ToArgs(const v1::LoadPlan& proto) {
  LoadArgs args{.path = proto.path(),
                .with_optimizer = proto.with_optimizer(),
                .creates_model = proto.creates_model(),
                .base_model = proto.base_model(),
                .user_metadata = ToMetadata(proto.user_metadata()),
                .lora_alpha = {},
                .target_modules = ToStrings(proto.target_modules()),
                .reader_tenant_id = proto.reader_tenant_id()};
  if (proto.has_lora_alpha()) args.lora_alpha = proto.lora_alpha();
  return args;
}

void FillArgs(const SampleArgs& args, v1::Plan& plan) {
  v1::SamplePlan& proto = *plan.mutable_sample();
  proto.set_num_samples(args.num_samples);
  proto.set_prompt_tokens(args.prompt_tokens);
  proto.set_max_tokens(args.max_tokens);
  proto.set_has_seed(args.has_seed);
  proto.set_seed(args.seed);
}

SampleArgs ToArgs(const v1::SamplePlan& proto) {
  return {.num_samples = proto.num_samples(),
          .prompt_tokens = proto.prompt_tokens(),
          .max_tokens = proto.max_tokens(),
          .has_seed = proto.has_seed(),
          .seed = proto.seed()};
}

void FillArgs(const UnloadArgs&, v1::Plan& plan) { plan.mutable_unload(); }

std::optional<OperationArgs> ToArgs(const v1::Plan& plan) {
  switch (plan.args_case()) {
    case v1::Plan::kCreateModel:
      return ToArgs(plan.create_model());
    case v1::Plan::kTrain:
      return TrainArgs{.batch_bytes = plan.train().batch_bytes()};
    case v1::Plan::kAdamParams:
      return OptimStepArgs{plan.adam_params()};
    case v1::Plan::kSave:
      return ToArgs(plan.save());
    case v1::Plan::kLoad:
      return ToArgs(plan.load());
    case v1::Plan::kSample:
      return ToArgs(plan.sample());
    case v1::Plan::kUnload:
      return UnloadArgs();
    case v1::Plan::ARGS_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace

int64_t BatchBytes(const Plan* plan) {
  const auto* const train = plan == nullptr ? nullptr : std::get_if<TrainArgs>(&plan->args);
  return train == nullptr ? 0 : train->batch_bytes;
}

std::string EncodePlan(const Plan& plan) {
  v1::Plan proto;
  std::visit([&proto](const auto& args) { FillArgs(args, proto); }, plan.args);
  proto.set_refused(plan.refused);
  proto.set_seed(plan.seed);
  proto.set_max_tokens(plan.max_tokens);
  proto.set_model_id(plan.model_id);
  proto.set_dir(plan.dir);
  proto.set_version_id(plan.version_id);
  proto.set_sampling_session_id(plan.sampling_session_id);
  proto.set_idempotency_key(plan.idempotency_key);
  return proto.SerializeAsString();
}

std::optional<Plan> DecodePlan(std::string_view bytes) {
  v1::Plan proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  std::optional<OperationArgs> args = ToArgs(proto);
  if (!args) return std::nullopt;
  return Plan{.args = *std::move(args),
              .refused = proto.refused(),
              .seed = proto.seed(),
              .max_tokens = proto.max_tokens(),
              .model_id = proto.model_id(),
              .dir = proto.dir(),
              .version_id = proto.version_id(),
              .sampling_session_id = proto.sampling_session_id(),
              .idempotency_key = proto.idempotency_key()};
}

bool IsPlanBeforeProto(std::string_view bytes) {
  constexpr char kFirstTag = 8;  // the smallest first byte of a message
  return !bytes.empty() && bytes.front() > 0 && bytes.front() < kFirstTag;
}

}  // namespace lathe::engine
