#include "services/worker/rpc/report_conversion.h"

#include <type_traits>
#include <variant>

#include "libs/common/errors.h"
#include "services/worker/rpc/tensor_conversion.h"
#include "services/worker/rpc/train_conversion.h"

namespace lathe::worker {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

lathe::v1::LoraFamily FamilyInProto(LoraFamily family) {
  if (family == LoraFamily::kAttention) return lathe::v1::LORA_FAMILY_ATTENTION;
  return family == LoraFamily::kMlp ? lathe::v1::LORA_FAMILY_MLP
                                    : lathe::v1::LORA_FAMILY_UNEMBEDDING;
}

void AddMetrics(const std::vector<NamedMetric>& metrics,
                google::protobuf::RepeatedPtrField<lathe::v1::NamedNumber>* out) {
  for (const NamedMetric& metric : metrics) {
    lathe::v1::NamedNumber* number = out->Add();
    number->set_name(metric.name);
    number->set_value(metric.value);
  }
}

void Fill(const TrainDone& report, const RequestInfo& info, lathe::v1::OperationDone* done) {
  lathe::v1::ForwardBackwardResult* result = done->mutable_result()->mutable_forward_backward();
  for (size_t i = 0; i < report.output.logprobs.size(); ++i) {
    lathe::v1::DatumOutput* output = result->add_outputs();
    output->set_logprobs(WritePacked(report.output.logprobs[i]));
    output->set_num_targets(i < info.output_columns.size() ? info.output_columns[i] : 0);
  }
  AddMetrics(report.output.metrics, result->mutable_metrics());
}

void Fill(const StepDone& report, const RequestInfo&, lathe::v1::OperationDone* done) {
  AddMetrics(report.metrics, done->mutable_result()->mutable_optim_step()->mutable_metrics());
}

void Fill(const OpDone& report, const RequestInfo& info, lathe::v1::OperationDone* done) {
  lathe::v1::OperationResult* result = done->mutable_result();
  switch (info.kind) {
    case lathe::v1::OPERATION_KIND_CREATE_MODEL:
      result->mutable_create_model()->set_model_id(info.model_id);
      *done->mutable_lora() = ToProto(report.lora);
      break;
    case lathe::v1::OPERATION_KIND_LOAD_WEIGHTS:
      result->mutable_load_weights()->set_model_id(info.model_id);
      *done->mutable_lora() = ToProto(report.lora);
      break;
    case lathe::v1::OPERATION_KIND_UNLOAD_MODEL:
      result->mutable_unload_model()->set_model_id(info.model_id);
      break;
    default:
      result->mutable_save_weights_for_sampler();
      done->set_version_bytes(report.version_bytes);
  }
}

void Fill(const SaveDone& report, const RequestInfo& info, lathe::v1::OperationDone* done) {
  if (info.kind == lathe::v1::OPERATION_KIND_SAVE_WEIGHTS) {
    done->mutable_result()->mutable_save_weights();
  } else if (info.kind == lathe::v1::OPERATION_KIND_SAVE_WEIGHTS_EXTERNAL) {
    done->mutable_result()->mutable_save_weights_external()->set_size_bytes(report.size_bytes);
  } else {
    done->mutable_result()->mutable_save_weights_for_sampler();
  }
  done->set_size_bytes(report.size_bytes);
  done->set_manifest_sha256(report.manifest_sha256);
}

void Fill(const SampleDone& report, const RequestInfo&, lathe::v1::OperationDone* done) {
  const SampleOutput& output = report.output;
  lathe::v1::SampleResult* result = done->mutable_result()->mutable_sample();
  for (const SampledSequence& sequence : output.sequences) {
    lathe::v1::SampledSequence* proto = result->add_sequences();
    proto->set_stopped(sequence.stopped);
    proto->set_tokens(WritePacked(sequence.tokens));
    proto->set_logprobs(WritePacked(sequence.logprobs));
    for (const WeightsRun& run : sequence.weights_runs) {
      lathe::v1::WeightsRun* out = proto->add_weights_runs();
      out->set_seq_id(run.seq_id);
      out->set_num_tokens(run.num_tokens);
    }
    if (sequence.topk_logprobs) *proto->mutable_topk_logprobs() = ToProto(*sequence.topk_logprobs);
  }
  result->set_prompt_logprobs(WritePacked(output.prompt_logprobs));
  if (output.topk_prompt_logprobs) {
    *result->mutable_topk_prompt_logprobs() = ToProto(*output.topk_prompt_logprobs);
  }
  if (output.target_prompt_logprobs) {
    *result->mutable_target_prompt_logprobs() = ToProto(*output.target_prompt_logprobs);
  }
  if (output.prompt_alt_tokens) {
    *result->mutable_prompt_alt_tokens() = ToProto(*output.prompt_alt_tokens);
  }
  result->set_prompt_cache_hit_tokens(output.prompt_cache_hit_tokens);
}

void Fill(const OpFailed& report, const RequestInfo&, lathe::v1::OperationDone* done) {
  *done->mutable_result()->mutable_error() = ToError(report.status);
}

void Fill(const Started&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const VersionLoaded&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const VersionServed&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const VersionFailed&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const SampleProgress&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const SnapshotDone&, const RequestInfo&, lathe::v1::OperationDone*) {}
void Fill(const VersionSaved&, const RequestInfo&, lathe::v1::OperationDone*) {}

}  // namespace

const std::string& AnsweredRequest(const Report& report) {
  static const std::string kNone;
  return std::visit(
      Overloaded{[](const Started&) -> const std::string& { return kNone; },
                 [](const VersionLoaded&) -> const std::string& { return kNone; },
                 [](const VersionServed&) -> const std::string& { return kNone; },
                 [](const VersionFailed&) -> const std::string& { return kNone; },
                 [](const SampleProgress&) -> const std::string& { return kNone; },
                 [](const SnapshotDone&) -> const std::string& { return kNone; },
                 [](const VersionSaved&) -> const std::string& { return kNone; },
                 [](const auto& answer) -> const std::string& { return answer.request_id; }},
      report);
}

lathe::v1::OperationDone ToOperationDone(const ReportEvent& event, const RequestInfo& info) {
  lathe::v1::OperationDone done;
  done.set_request_id(AnsweredRequest(event.report));
  done.mutable_result()->set_kind(info.kind);
  std::visit([&](const auto& report) { Fill(report, info, &done); }, event.report);
  if (event.model.has_value()) *done.mutable_model() = ToProto(*event.model);
  return done;
}

lathe::v1::Error ToError(const absl::Status& status) {
  const bool is_user = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kFailedPrecondition;
  lathe::v1::Error error;
  error.set_code(ErrorCode(status));
  error.set_category(is_user ? lathe::v1::ERROR_CATEGORY_USER : lathe::v1::ERROR_CATEGORY_SERVER);
  error.set_field(ErrorField(status));
  error.set_message(std::string(status.message()));
  return error;
}

lathe::v1::SampleProgress ToProto(const SampleProgress& progress) {
  lathe::v1::SampleProgress proto;
  for (const SampledToken& token : progress.tokens) {
    lathe::v1::SampledToken* out = proto.add_tokens();
    out->set_request_id(token.request_id);
    out->set_sample_index(token.sample_index);
    out->set_token_index(token.token_index);
    out->set_token(token.token);
    out->set_logprob(token.logprob);
    out->set_finished(token.finished);
    out->set_stopped(token.stopped);
  }
  for (const EndedSequences& ended : progress.ended) {
    lathe::v1::EndedSequences* out = proto.add_ended();
    out->set_request_id(ended.request_id);
    out->set_num_ended(ended.num_ended);
  }
  return proto;
}

lathe::v1::SnapshotDone ToProto(const SnapshotDone& done) {
  lathe::v1::SnapshotDone proto;
  proto.set_snapshot_id(done.snapshot_id);
  *proto.mutable_model() = ToProto(done.state);
  if (!done.status.ok()) {
    *proto.mutable_error() = ToError(done.status);
    return proto;
  }
  proto.set_size_bytes(done.size_bytes);
  proto.set_manifest_sha256(done.manifest_sha256);
  proto.set_write_nanoseconds(absl::ToInt64Nanoseconds(done.write_time));
  return proto;
}

lathe::v1::VersionSaved ToProto(const VersionSaved& saved) {
  lathe::v1::VersionSaved proto;
  proto.set_version_id(saved.version_id);
  proto.set_dir(saved.dir);
  proto.set_seq_id(saved.seq_id);
  if (!saved.status.ok()) {
    *proto.mutable_error() = ToError(saved.status);
    return proto;
  }
  proto.set_size_bytes(saved.size_bytes);
  proto.set_manifest_sha256(saved.manifest_sha256);
  return proto;
}

lathe::v1::VersionServed ToProto(const VersionServed& served) {
  lathe::v1::VersionServed proto;
  proto.set_version_id(served.version_id);
  proto.set_reader(served.reader);
  proto.set_seq_id(served.seq_id);
  if (!served.status.ok()) *proto.mutable_error() = ToError(served.status);
  return proto;
}

lathe::v1::ModelState ToProto(const ModelState& state) {
  lathe::v1::ModelState proto;
  proto.set_model_id(state.model_id);
  proto.set_applied_seq(state.applied_seq);
  for (const int64_t seq_id : state.window) proto.add_window(seq_id);
  return proto;
}

lathe::v1::ModelInfo ToProto(const ModelInfo& info) {
  lathe::v1::ModelInfo proto;
  proto.set_name(info.name);
  proto.set_content_hash(info.content_hash);
  proto.set_arch(info.arch);
  proto.set_max_context_length(info.max_context_length);
  proto.set_vocab_size(info.vocab_size);
  proto.set_tokenizer_id(info.tokenizer_id);
  for (const int64_t token_id : info.eos_token_ids) proto.add_eos_token_ids(token_id);
  proto.set_max_lora_rank(info.max_lora_rank);
  proto.set_token_budget(info.token_budget);
  proto.set_kv_cache_tokens(info.kv_cache_tokens);
  proto.set_max_running_samples(info.max_running_samples);
  for (const LoraModule& module : info.lora_modules) {
    lathe::v1::LoraModule* const one = proto.add_lora_modules();
    one->set_name(module.name);
    one->set_family(FamilyInProto(module.family));
  }
  return proto;
}

lathe::v1::MemoryUse ToProto(const MemoryUse& use) {
  lathe::v1::MemoryUse proto;
  proto.set_used_bytes(use.used);
  proto.set_limit_bytes(use.limit);
  for (const MemoryShare& share : use.shares) {
    lathe::v1::MemoryShare* const one = proto.add_shares();
    one->set_owner(share.owner);
    one->set_used_bytes(share.used);
    one->set_limit_bytes(share.limit);
  }
  return proto;
}

}  // namespace lathe::worker
