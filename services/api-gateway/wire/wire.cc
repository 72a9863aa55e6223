#include "services/api-gateway/wire/wire.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/api-gateway/wire/wire_check.h"

namespace lathe::gateway {
namespace {

constexpr auto kByName = [](const auto& a, const auto& b) { return a.name() < b.name(); };

template <typename Repeated>
void SortByName(Repeated* entries) {
  std::sort(entries->begin(), entries->end(), kByName);
}

v1::Chunk FromTinker(tinker_public::Chunk chunk) {
  v1::Chunk result;
  switch (chunk.chunk_case()) {
    case tinker_public::Chunk::kEncodedText:
      result.set_tokens(std::move(*chunk.mutable_encoded_text()->mutable_tokens()));
      break;
    case tinker_public::Chunk::kImage:
      result.set_unsupported("image");
      break;
    case tinker_public::Chunk::kDmel:
      result.set_unsupported("dmel");
      break;
    case tinker_public::Chunk::CHUNK_NOT_SET:
      result.set_unsupported("unknown");
      break;
  }
  return result;
}

v1::Tensor FromTinker(tinker_public::Tensor tensor) {
  v1::Tensor result;
  // Both enums have the same numbers. Unknown numbers are kept, and the engine refuses them.
  result.set_dtype(static_cast<v1::DType>(tensor.dtype()));
  result.mutable_shape()->Swap(tensor.mutable_shape());
  if (tensor.has_dense()) {
    result.set_dense(std::move(*tensor.mutable_dense()));
  } else if (tensor.has_sparse_csr()) {
    tinker_public::SparseCsr& from = *tensor.mutable_sparse_csr();
    v1::SparseCsr& to = *result.mutable_sparse_csr();
    to.set_values(std::move(*from.mutable_values()));
    to.set_crow_indices(std::move(*from.mutable_crow_indices()));
    to.set_col_indices(std::move(*from.mutable_col_indices()));
  }
  return result;
}

void FromTinker(const google::protobuf::RepeatedPtrField<tinker_public::ProvenanceSpan>& spans,
                google::protobuf::RepeatedPtrField<v1::ProvenanceSpan>* result) {
  for (const tinker_public::ProvenanceSpan& span : spans) {
    const auto add = [result](const auto& from) {
      v1::ProvenanceSpan* to = result->Add();
      to->set_sequence_id(from.sequence_id());
      to->set_offset(from.offset());
      to->set_length(from.length());
      return to;
    };
    if (span.has_sampled_tokens()) {
      add(span.sampled_tokens())->set_sampled(true);
    } else {
      // A span of neither kind gets an empty sequence_id, which the engine refuses.
      add(span.prompt_tokens());
    }
  }
}

void FromTinker(tinker_public::Datum datum, v1::Datum* result) {
  for (tinker_public::Chunk& chunk : *datum.mutable_model_input()) {
    *result->add_model_input() = FromTinker(std::move(chunk));
  }
  for (auto& [name, tensor] : *datum.mutable_loss_fn_inputs()) {
    v1::NamedTensor* named = result->add_loss_fn_inputs();
    named->set_name(name);
    *named->mutable_tensor() = FromTinker(std::move(tensor));
  }
  SortByName(result->mutable_loss_fn_inputs());
  FromTinker(datum.model_input_spans(), result->mutable_model_input_spans());
  FromTinker(datum.loss_fn_input_spans(), result->mutable_loss_fn_input_spans());
}

void AddNumber(const std::string& name, double value, v1::LossSpec* loss) {
  v1::NamedNumber* entry = loss->add_config();
  entry->set_name(name);
  entry->set_value(value);
}

v1::LossSpec LossFromTinker(const tinker_public::ForwardBackwardRequest& message) {
  v1::LossSpec loss;
  loss.set_name(message.loss_fn());
  for (const auto& [name, value] : message.loss_fn_config_v2()) {
    if (value.has_text()) {
      v1::NamedString* entry = loss.add_text_config();
      entry->set_name(name);
      entry->set_value(value.text());
    } else {
      AddNumber(name, value.number(), &loss);
    }
  }
  if (message.loss_fn_config_v2().empty()) {
    for (const auto& [name, value] : message.loss_fn_config()) AddNumber(name, value, &loss);
  }
  SortByName(loss.mutable_config());
  SortByName(loss.mutable_text_config());
  return loss;
}

constexpr char kOutputType[] = "ArrayRecord";
constexpr char kLogprobs[] = "logprobs";

// Appends the byte offset `end` to the packed array `offsets`.
void AddOffset(int64_t end, std::string* offsets) {
  offsets->append(reinterpret_cast<const char*>(&end), sizeof(end));
}

tinker_public::BatchedTensor* StartRecord(int64_t num_targets,
                                          tinker_public::ForwardBackwardOutput* output) {
  tinker_public::ArrayRecord* record = output->add_loss_fn_outputs();
  record->set_type_tag(kOutputType);
  tinker_public::BatchedTensor& tensor = (*record->mutable_fields())[kLogprobs];
  tensor.set_dtype(tinker_public::DTYPE_FLOAT32);
  if (num_targets > 0) tensor.add_trailing_shape(num_targets);
  AddOffset(0, tensor.mutable_offsets());
  return &tensor;
}

tinker_public::TopkLogprobs ToTinker(v1::TopkLogprobs topk) {
  tinker_public::TopkLogprobs result;
  result.set_token_ids(std::move(*topk.mutable_token_ids()));
  result.set_logprobs(std::move(*topk.mutable_logprobs()));
  result.set_k(static_cast<uint32_t>(topk.k()));
  result.set_length(static_cast<uint32_t>(topk.length()));
  return result;
}

tinker_public::Tensor ToTinker(v1::Tensor tensor) {
  tinker_public::Tensor result;
  // Both enums have the same numbers.
  result.set_dtype(static_cast<tinker_public::DType>(tensor.dtype()));
  *result.mutable_shape() = std::move(*tensor.mutable_shape());
  if (!tensor.has_sparse_csr()) {
    result.set_dense(std::move(*tensor.mutable_dense()));
    return result;
  }
  v1::SparseCsr& from = *tensor.mutable_sparse_csr();
  tinker_public::SparseCsr* sparse = result.mutable_sparse_csr();
  sparse->set_values(std::move(*from.mutable_values()));
  sparse->set_crow_indices(std::move(*from.mutable_crow_indices()));
  sparse->set_col_indices(std::move(*from.mutable_col_indices()));
  return result;
}

}  // namespace

v1::ForwardBackwardRequest FromTinker(tinker_public::ForwardBackwardRequest message) {
  v1::ForwardBackwardRequest request;
  request.set_model_id(message.model_id());
  request.set_seq_id(message.seq_id());
  request.set_forward_only(message.forward_only());
  *request.mutable_loss() = LossFromTinker(message);
  for (tinker_public::Datum& datum : *message.mutable_data()) {
    FromTinker(std::move(datum), request.add_data());
  }
  return request;
}

absl::Status ForwardBackwardFromWire(const std::string& body, v1::ForwardBackwardRequest* request) {
  tinker_public::ForwardBackwardRequest message;
  const bool is_whole = message.ParseFromString(body);
  if (is_whole) {
    *request = FromTinker(std::move(message));
    return absl::OkStatus();
  }
  // These fields come first on the wire, so they have usually been read before the damage.
  request->set_model_id(message.model_id());
  request->set_seq_id(message.seq_id());
  return ExplainBadProto(body, *tinker_public::ForwardBackwardRequest::descriptor());
}

tinker_public::ForwardBackwardOutput ToTinker(v1::ForwardBackwardResult result) {
  tinker_public::ForwardBackwardOutput output;
  output.set_loss_fn_output_type(kOutputType);
  tinker_public::BatchedTensor* tensor = nullptr;
  int64_t num_targets = 0;
  for (const v1::DatumOutput& datum : result.outputs()) {
    if (tensor == nullptr || datum.num_targets() != num_targets) {
      num_targets = datum.num_targets();
      tensor = StartRecord(num_targets, &output);
    }
    tensor->mutable_data()->append(datum.logprobs());
    AddOffset(static_cast<int64_t>(tensor->data().size()), tensor->mutable_offsets());
    auto* record = output.mutable_loss_fn_outputs(output.loss_fn_outputs_size() - 1);
    record->set_num_datums(record->num_datums() + 1);
  }
  for (const v1::NamedNumber& metric : result.metrics()) {
    if (std::isfinite(metric.value())) (*output.mutable_metrics())[metric.name()] = metric.value();
  }
  return output;
}

tinker_public::SampleResponse ToTinker(v1::SampleResult result) {
  tinker_public::SampleResponse response;
  for (v1::SampledSequence& sequence : *result.mutable_sequences()) {
    tinker_public::SampledSequence* to = response.add_sequences();
    to->set_stop_reason(sequence.stopped() ? tinker_public::STOP_REASON_STOP
                                           : tinker_public::STOP_REASON_LENGTH);
    to->set_tokens(std::move(*sequence.mutable_tokens()));
    to->set_logprobs(std::move(*sequence.mutable_logprobs()));
    if (sequence.has_topk_logprobs()) {
      *to->mutable_topk_sampled_logprobs() = ToTinker(std::move(*sequence.mutable_topk_logprobs()));
    }
  }
  if (!result.prompt_logprobs().empty()) {
    response.set_prompt_logprobs(std::move(*result.mutable_prompt_logprobs()));
  }
  if (result.has_topk_prompt_logprobs()) {
    *response.mutable_topk_prompt_logprobs() =
        ToTinker(std::move(*result.mutable_topk_prompt_logprobs()));
  }
  if (result.has_target_prompt_logprobs()) {
    *response.mutable_target_prompt_logprobs() =
        ToTinker(std::move(*result.mutable_target_prompt_logprobs()));
  }
  if (result.has_prompt_alt_tokens()) {
    v1::PromptAltTokens& drawn = *result.mutable_prompt_alt_tokens();
    tinker_public::PromptAltTokens* to = response.mutable_prompt_alt_tokens();
    *to->mutable_tokens() = ToTinker(std::move(*drawn.mutable_tokens()));
    *to->mutable_logprobs() = ToTinker(std::move(*drawn.mutable_logprobs()));
  }
  response.set_prompt_cache_hit_tokens(static_cast<int32_t>(result.prompt_cache_hit_tokens()));
  return response;
}

}  // namespace lathe::gateway
