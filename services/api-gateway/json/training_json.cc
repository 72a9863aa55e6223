#include "services/api-gateway/json/training_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/large_reader.h"
#include "services/api-gateway/json/sampling_json.h"

namespace lathe::gateway {
namespace {

using simdjson::dom::element;

std::string PackElements(v1::DType dtype, LargeObject& in, std::string_view name) {
  simdjson::dom::array list = in.Array(name);
  return dtype == v1::DTYPE_INT64 ? PackInt64(list, in.PointerTo(name), in.errors())
                                  : PackFloat32(list, in.PointerTo(name), in.errors());
}

void ReadTensor(LargeObject in, v1::Tensor* tensor) {
  const std::string dtype = in.String("dtype");
  if (dtype != "int64" && dtype != "float32") {
    in.errors().Fail(in.PointerTo("dtype"), "int64 or float32");
    return;
  }
  tensor->set_dtype(dtype == "int64" ? v1::DTYPE_INT64 : v1::DTYPE_FLOAT32);
  if (in.Has("shape")) {
    for (const element size : in.Array("shape")) {
      int64_t dim = 0;
      if (size.get(dim) != simdjson::SUCCESS) in.errors().Fail(in.PointerTo("shape"), "integers");
      tensor->add_shape(dim);
    }
  }
  if (!in.Has("sparse_crow_indices")) {
    tensor->set_dense(PackElements(tensor->dtype(), in, "data"));
    return;
  }
  v1::SparseCsr* sparse = tensor->mutable_sparse_csr();
  sparse->set_values(PackElements(tensor->dtype(), in, "data"));
  sparse->set_crow_indices(PackElements(v1::DTYPE_INT64, in, "sparse_crow_indices"));
  sparse->set_col_indices(PackElements(v1::DTYPE_INT64, in, "sparse_col_indices"));
}

void ReadSpans(LargeObject& in, std::string_view name,
               google::protobuf::RepeatedPtrField<v1::ProvenanceSpan>* spans) {
  if (!in.Has(name)) return;
  size_t index = 0;
  for (const element value : in.Array(name)) {
    LargeObject from(value, absl::StrCat(in.PointerTo(name), "/", index++), in.errors());
    const std::string type = from.String("type");
    if (type != "prompt_tokens" && type != "sampled_tokens") {
      in.errors().Fail(from.PointerTo("type"), "prompt_tokens or sampled_tokens");
      return;
    }
    v1::ProvenanceSpan* span = spans->Add();
    span->set_sampled(type == "sampled_tokens");
    span->set_sequence_id(from.String("sequence_id"));
    span->set_offset(from.IntOr("offset", 0));
    span->set_length(from.Int("length"));
  }
}

void ReadDatum(LargeObject in, v1::Datum* datum) {
  LargeObject input = in.Object("model_input");
  ReadChunks(input.Array("chunks"), input.PointerTo("chunks"), in.errors(),
             datum->mutable_model_input());
  LargeObject tensors = in.Object("loss_fn_inputs");
  if (!tensors.members()) return;
  for (const auto field : *tensors.members()) {
    v1::NamedTensor* named = datum->add_loss_fn_inputs();
    named->set_name(std::string(field.key));
    ReadTensor(LargeObject(field.value, tensors.PointerTo(field.key), in.errors()),
               named->mutable_tensor());
  }
  std::sort(datum->mutable_loss_fn_inputs()->begin(), datum->mutable_loss_fn_inputs()->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  ReadSpans(in, "model_input_spans", datum->mutable_model_input_spans());
  ReadSpans(in, "loss_fn_input_spans", datum->mutable_loss_fn_input_spans());
}

void ReadLoss(LargeObject& in, v1::LossSpec* loss) {
  loss->set_name(in.String("loss_fn"));
  if (!in.Has("loss_fn_config")) return;
  LargeObject config = in.Object("loss_fn_config");
  if (!config.members()) return;
  for (const auto field : *config.members()) {
    std::string_view text;
    double number = 0;
    if (field.value.get(number) == simdjson::SUCCESS) {
      v1::NamedNumber* entry = loss->add_config();
      entry->set_name(std::string(field.key));
      entry->set_value(number);
    } else if (field.value.get(text) == simdjson::SUCCESS) {
      v1::NamedString* entry = loss->add_text_config();
      entry->set_name(std::string(field.key));
      entry->set_value(std::string(text));
    } else {
      in.errors().Fail(config.PointerTo(field.key), "a number or a string");
    }
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name() < b.name(); };
  std::sort(loss->mutable_config()->begin(), loss->mutable_config()->end(), by_name);
  std::sort(loss->mutable_text_config()->begin(), loss->mutable_text_config()->end(), by_name);
}

}  // namespace

absl::Status ForwardBackwardFromJson(const std::string& body, bool forward_only,
                                     v1::ForwardBackwardRequest* request) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const element root, ParseLargeJson(parser, body));
  LargeErrors errors;
  LargeObject in(root, "", errors);
  request->set_model_id(in.String("model_id"));
  request->set_seq_id(in.IntOr("seq_id", 0));
  request->set_forward_only(forward_only);
  LargeObject input = in.Object(forward_only ? "forward_input" : "forward_backward_input");
  ReadLoss(input, request->mutable_loss());
  size_t index = 0;
  for (const element datum : input.Array("data")) {
    if (!errors.ok()) break;
    ReadDatum(LargeObject(datum, absl::StrCat(input.PointerTo("data"), "/", index++), errors),
              request->add_data());
  }
  return errors.status();
}

}  // namespace lathe::gateway
