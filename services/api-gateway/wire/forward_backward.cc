#include "services/api-gateway/wire/forward_backward.h"

#include <algorithm>
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

}  // namespace lathe::gateway
