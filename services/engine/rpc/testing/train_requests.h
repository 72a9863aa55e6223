// Valid batches for each kind of loss, which tests modify.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protos/lathe/v1/engine.pb.h"

namespace lathe::engine {

template <typename T>
inline std::string Pack(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline v1::Tensor Floats(const std::vector<float>& values, const std::vector<int64_t>& shape = {}) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_FLOAT32);
  tensor.set_dense(Pack(values));
  for (const int64_t dim : shape) tensor.add_shape(dim);
  return tensor;
}

inline v1::Tensor Ints(const std::vector<int64_t>& values, const std::vector<int64_t>& shape = {}) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_INT64);
  tensor.set_dense(Pack(values));
  for (const int64_t dim : shape) tensor.add_shape(dim);
  return tensor;
}

inline v1::Tensor Csr(v1::DType dtype, const std::string& values, const std::vector<int64_t>& crow,
                      const std::vector<int64_t>& col, const std::vector<int64_t>& shape) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_sparse_csr()->set_values(values);
  tensor.mutable_sparse_csr()->set_crow_indices(Pack(crow));
  tensor.mutable_sparse_csr()->set_col_indices(Pack(col));
  for (const int64_t dim : shape) tensor.add_shape(dim);
  return tensor;
}

inline v1::Tensor& Input(v1::ForwardBackwardRequest& request, const std::string& name) {
  v1::Datum* datum = request.mutable_data(request.data_size() - 1);
  for (v1::NamedTensor& input : *datum->mutable_loss_fn_inputs()) {
    if (input.name() == name) return *input.mutable_tensor();
  }
  v1::NamedTensor* input = datum->add_loss_fn_inputs();
  input->set_name(name);
  return *input->mutable_tensor();
}

// Two valid datums of three tokens.
inline v1::ForwardBackwardRequest CrossEntropy() {
  v1::ForwardBackwardRequest request;
  request.mutable_loss()->set_name("cross_entropy");
  for (int i = 0; i < 2; ++i) {
    request.add_data()->add_model_input()->set_tokens(Pack<int32_t>({1, 2, 3}));
    Input(request, "target_tokens") = Ints({2, 3, 4});
    Input(request, "weights") = Floats({-1, 0, 2.5});
  }
  return request;
}

inline v1::ForwardBackwardRequest Ppo() {
  v1::ForwardBackwardRequest request = CrossEntropy();
  request.mutable_loss()->set_name("ppo");
  for (v1::Datum& datum : *request.mutable_data()) datum.clear_loss_fn_inputs();
  for (int i = 0; i < 2; ++i) {
    v1::Datum* datum = request.mutable_data(i);
    for (const char* name : {"advantages", "logprobs"}) {
      v1::NamedTensor* input = datum->add_loss_fn_inputs();
      input->set_name(name);
      *input->mutable_tensor() = Floats({1, 2, 3});
    }
    v1::NamedTensor* targets = datum->add_loss_fn_inputs();
    targets->set_name("target_tokens");
    *targets->mutable_tensor() = Ints({2, 3, 4});
  }
  return request;
}

inline v1::ForwardBackwardRequest Gspo() {
  v1::ForwardBackwardRequest request = Ppo();
  request.mutable_loss()->set_name("gspo");
  for (v1::Datum& datum : *request.mutable_data()) {
    v1::NamedTensor* mask = datum.add_loss_fn_inputs();
    mask->set_name("sequence_ratio_mask");
    *mask->mutable_tensor() = Floats({0, 1, 1});
  }
  return request;
}

inline v1::ProvenanceSpan Span(bool sampled, int64_t length) {
  v1::ProvenanceSpan span;
  span.set_sequence_id("q");
  span.set_sampled(sampled);
  span.set_length(length);
  return span;
}

// Input: two prompt tokens and one sampled. Targets: one prompt token and two sampled.
inline v1::ForwardBackwardRequest StableReinforce() {
  v1::ForwardBackwardRequest request = Ppo();
  request.mutable_loss()->set_name("stable_reinforce");
  for (v1::Datum& datum : *request.mutable_data()) {
    *datum.mutable_loss_fn_inputs(0)->mutable_tensor() = Floats({0, 1, 2});
    *datum.add_model_input_spans() = Span(false, 2);
    *datum.add_model_input_spans() = Span(true, 1);
    *datum.add_loss_fn_input_spans() = Span(false, 1);
    *datum.add_loss_fn_input_spans() = Span(true, 0);
    *datum.add_loss_fn_input_spans() = Span(true, 2);
  }
  return request;
}

inline void AddConfig(v1::ForwardBackwardRequest& request, const std::string& name, double value) {
  v1::NamedNumber* number = request.mutable_loss()->add_config();
  number->set_name(name);
  number->set_value(value);
}

inline void AddText(v1::ForwardBackwardRequest& request, const std::string& name,
                    const std::string& value) {
  v1::NamedString* text = request.mutable_loss()->add_text_config();
  text->set_name(name);
  text->set_value(value);
}

}  // namespace lathe::engine
