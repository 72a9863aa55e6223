#include "services/api-gateway/wire/result_wire.h"

#include <cmath>
#include <utility>

namespace lathe::gateway {
namespace {

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
