#include "services/engine/rpc/validate_training.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "libs/common/errors.h"
#include "services/engine/rpc/testing/train_requests.h"
#include "services/engine/rpc/validate_tensor.h"

namespace lathe::engine {
namespace {

constexpr ModelLimits kTrainingLimits{.max_context_length = 8, .vocab_size = 100};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  const char* name;
  std::function<void(v1::ForwardBackwardRequest&)> spoil;
  const char* code;
  const char* message;  // part of it
};

void CheckRefusal(const absl::Status& status, const Row& row) {
  INFO(row.name);
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorCode(status) == row.code);
  CHECK_THAT(std::string(status.message()), Catch::Contains(row.message));
}

TEST_CASE("forward_backward: valid requests of every loss pass", "[validate]") {
  CHECK(ValidateForwardBackward(CrossEntropy(), kTrainingLimits).ok());
  CHECK(CountTokens(CrossEntropy()) == 6);

  v1::ForwardBackwardRequest no_weights = CrossEntropy();
  no_weights.mutable_data(0)->mutable_loss_fn_inputs()->RemoveLast();
  CHECK(ValidateForwardBackward(no_weights, kTrainingLimits).ok());

  v1::ForwardBackwardRequest two_dims = CrossEntropy();
  Input(two_dims, "target_tokens") = Ints({1, 2, 3, 4, 5, 6}, {3, 2});
  Input(two_dims, "weights") =
      Csr(v1::DTYPE_FLOAT32, Pack<float>({1, 2}), {0, 1, 1, 2}, {1, 0}, {3, 2});
  CHECK(ValidateForwardBackward(two_dims, kTrainingLimits).ok());

  v1::ForwardBackwardRequest ppo = Ppo();
  AddConfig(ppo, "clip_low_threshold", 0.8);
  AddConfig(ppo, "clip_high_threshold", 1.2);
  Input(ppo, "clip_low_threshold") = Floats({0.5, 0.5, 0.5});
  CHECK(ValidateForwardBackward(ppo, kTrainingLimits).ok());

  for (const char* loss : {"importance_sampling", "cispo", "dro"}) {
    v1::ForwardBackwardRequest request = Ppo();
    request.mutable_loss()->set_name(loss);
    CHECK(ValidateForwardBackward(request, kTrainingLimits).ok());
  }

  v1::ForwardBackwardRequest gspo = Gspo();
  AddConfig(gspo, "clip_low_threshold", 0.8);
  CHECK(ValidateForwardBackward(gspo, kTrainingLimits).ok());
  Input(gspo, "sequence_ratio_mask") = Floats({0, 0, 0});
  Input(gspo, "advantages") = Floats({0, 0, 0});
  CHECK(ValidateForwardBackward(gspo, kTrainingLimits).ok());

  v1::ForwardBackwardRequest stable = StableReinforce();
  AddConfig(stable, "kl_coeff", 0.01);
  const absl::Status status = ValidateForwardBackward(stable, kTrainingLimits);
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("forward_backward: spans are skipped by losses that do not read them", "[validate]") {
  v1::ForwardBackwardRequest request = Ppo();
  *request.mutable_data(0)->add_model_input_spans() = Span(true, -7);
  CHECK(ValidateForwardBackward(request, kTrainingLimits).ok());
}

TEST_CASE("forward_backward: a body that could not be read fails with its reason", "[validate]") {
  v1::ForwardBackwardRequest request;
  request.set_malformed(std::string(2000, 'x'));
  const absl::Status status = ValidateForwardBackward(request, kTrainingLimits);
  CHECK(ErrorCode(status) == "malformed");
  CHECK(status.message() == std::string(1024, 'x'));
}

TEST_CASE("forward_backward: the spans of sampled tokens are checked", "[validate]") {
  using Request = v1::ForwardBackwardRequest;
  const std::vector<Row> gspo_rows = {
      {"no mask", [](Request& r) { r.mutable_data(1)->mutable_loss_fn_inputs()->RemoveLast(); },
       "bad_loss_input", "data[1].loss_fn_inputs.sequence_ratio_mask is missing, gspo needs it"},
      {"half",
       [](Request& r) {
         Input(r, "sequence_ratio_mask") = Floats({0, 1, 0.5});
       },
       "bad_loss_input",
       "data[1].loss_fn_inputs.sequence_ratio_mask: value at position 2 is 0.5, expected 0 or 1"},
      {"all zero",
       [](Request& r) {
         Input(r, "sequence_ratio_mask") = Floats({0, 0, 0});
       },
       "bad_loss_input", "data[1].loss_fn_inputs.sequence_ratio_mask is 0 everywhere"},
      {"short",
       [](Request& r) {
         Input(r, "sequence_ratio_mask") = Floats({1, 1});
       },
       "bad_loss_input", "sequence_ratio_mask: length is 2, target_tokens has 3"},
  };
  for (const Row& row : gspo_rows) {
    Request request = Gspo();
    row.spoil(request);
    CheckRefusal(ValidateForwardBackward(request, kTrainingLimits), row);
  }
  const std::vector<Row> span_rows = {
      {"no input spans", [](Request& r) { r.mutable_data(0)->clear_model_input_spans(); },
       "bad_provenance", "data[0].model_input_spans is missing, stable_reinforce needs it"},
      {"no target spans", [](Request& r) { r.mutable_data(1)->clear_loss_fn_input_spans(); },
       "bad_provenance", "data[1].loss_fn_input_spans is missing"},
      {"short",
       [](Request& r) { r.mutable_data(1)->mutable_loss_fn_input_spans(2)->set_length(1); },
       "bad_provenance", "data[1].loss_fn_input_spans: lengths sum to 2, expected 3"},
      {"long", [](Request& r) { r.mutable_data(1)->mutable_model_input_spans(1)->set_length(2); },
       "bad_provenance", "data[1].model_input_spans[1]: length is 2, expected 0 to 1"},
      {"negative",
       [](Request& r) { r.mutable_data(1)->mutable_loss_fn_input_spans(0)->set_length(-1); },
       "bad_provenance", "data[1].loss_fn_input_spans[0]: length is -1, expected 0 to 3"},
      {"offset",
       [](Request& r) { r.mutable_data(1)->mutable_loss_fn_input_spans(0)->set_offset(-1); },
       "bad_provenance", "data[1].loss_fn_input_spans[0]: offset is -1, expected at least 0"},
      {"no id",
       [](Request& r) { r.mutable_data(1)->mutable_model_input_spans(0)->clear_sequence_id(); },
       "bad_provenance", "data[1].model_input_spans[0]: sequence_id is empty"},
      {"advantage of a prompt's token",
       [](Request& r) {
         Input(r, "advantages") = Floats({0.5, 1, 2});
       },
       "bad_provenance", "data[1].loss_fn_inputs.advantages: value at position 0 is 0.5"},
      {"kl_coeff below zero", [](Request& r) { AddConfig(r, "kl_coeff", -1); }, "bad_loss_config",
       "loss_fn_config.kl_coeff is -1"},
      {"a string",
       [](Request& r) {
         v1::NamedString* text = r.mutable_loss()->add_text_config();
         text->set_name("kl_coeff");
         text->set_value("much");
       },
       "bad_loss_config", "loss_fn_config.kl_coeff is 'much', expected a number"},
      {"custom", [](Request& r) { r.mutable_loss()->set_name("custom"); }, "bad_loss",
       "call forward_backward_custom, which runs the loss in your process"},
  };
  for (const Row& row : span_rows) {
    Request request = StableReinforce();
    row.spoil(request);
    CheckRefusal(ValidateForwardBackward(request, kTrainingLimits), row);
  }
}

TEST_CASE("forward_backward: every bad datum is refused by datum and field", "[validate]") {
  using Request = v1::ForwardBackwardRequest;
  const std::vector<Row> rows = {
      {"no data", [](Request& r) { r.clear_data(); }, "empty_batch", "data is empty"},
      {"too many",
       [](Request& r) {
         while (r.data_size() < 65537) r.add_data();
       },
       "too_many_datums", "data has 65537 datums, limit is 65536"},
      {"no tokens", [](Request& r) { r.mutable_data(1)->clear_model_input(); }, "empty_batch",
       "data[1].model_input has no tokens"},
      {"image", [](Request& r) { r.mutable_data(1)->add_model_input()->set_unsupported("image"); },
       "unsupported_chunk", "data[1].model_input: chunk 1 is of kind 'image'"},
      {"odd bytes",
       [](Request& r) { r.mutable_data(1)->mutable_model_input(0)->set_tokens("12345"); },
       "bad_tensor", "data[1].model_input: chunk 0 has 5 bytes"},
      {"token too large",
       [](Request& r) {
         r.mutable_data(1)->mutable_model_input(0)->set_tokens(Pack<int32_t>({1, 100, 3}));
       },
       "bad_token", "data[1].model_input: token at position 1 is 100, vocabulary size is 100"},
      {"negative token",
       [](Request& r) {
         r.mutable_data(1)->mutable_model_input(0)->set_tokens(Pack<int32_t>({-1, 1, 3}));
       },
       "bad_token", "position 0 is -1"},
      {"too long",
       [](Request& r) {
         r.mutable_data(1)->mutable_model_input(0)->set_tokens(Pack(std::vector<int32_t>(9, 1)));
       },
       "too_long", "data[1].model_input has 9 tokens, limit is 8"},
      {"no targets",
       [](Request& r) { r.mutable_data(1)->mutable_loss_fn_inputs()->DeleteSubrange(0, 1); },
       "bad_loss_input", "data[1].loss_fn_inputs.target_tokens is missing"},
      {"unknown input",
       [](Request& r) {
         Input(r, "mask") = Floats({1, 1, 1});
       },
       "bad_loss_input", "data[1].loss_fn_inputs.mask: cross_entropy takes target_tokens, weights"},
      {"input twice",
       [](Request& r) { *r.mutable_data(1)->add_loss_fn_inputs() = r.data(1).loss_fn_inputs(1); },
       "bad_loss_input", "data[1].loss_fn_inputs.weights is given twice"},
      {"short targets",
       [](Request& r) {
         Input(r, "target_tokens") = Ints({1, 2});
       },
       "bad_loss_input", "length is 2, model_input has 3 tokens"},
      {"target out of vocabulary",
       [](Request& r) {
         Input(r, "target_tokens") = Ints({1, 2, 100});
       },
       "bad_token", "data[1].loss_fn_inputs.target_tokens: token at position 2 is 100"},
      {"float targets",
       [](Request& r) {
         Input(r, "target_tokens") = Floats({1, 2, 3});
       },
       "bad_tensor", "dtype is float32, expected int64"},
      {"integer weights",
       [](Request& r) {
         Input(r, "weights") = Ints({1, 2, 3});
       },
       "bad_tensor", "dtype is int64, expected float32"},
      {"no dtype", [](Request& r) { Input(r, "weights").set_dtype(v1::DTYPE_UNSPECIFIED); },
       "bad_tensor", "dtype is unknown"},
      {"weights of other shape",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2});
       },
       "bad_loss_input", "length is 2, target_tokens has 3"},
      {"nan weight",
       [](Request& r) {
         Input(r, "weights") = Floats({1, kNan, 2});
       },
       "non_finite_input", "data[1].loss_fn_inputs.weights: value at position 1 is nan"},
      {"infinite weight",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2, INFINITY});
       },
       "non_finite_input", "value at position 2 is inf"},
      {"bytes against shape",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2, 3}, {4});
       },
       "bad_tensor", "12 bytes do not make a float32 tensor of shape [4]"},
      {"negative dimension",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2, 3}, {-3});
       },
       "bad_tensor", "out of range"},
      {"overflowing shape",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2, 3}, {1ll << 31, 1ll << 31});
       },
       "bad_tensor", "do not make"},
      {"three dimensions",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 2, 3}, {3, 1, 1});
       },
       "bad_tensor", "has 3 dimensions, limit is 2"},
      {"unknown loss", [](Request& r) { r.mutable_loss()->set_name("mse"); }, "bad_loss",
       "loss_fn is 'mse', allowed are cross_entropy, importance_sampling, ppo, cispo, dro, gspo"},
      {"config of no config", [](Request& r) { AddConfig(r, "beta", 1); }, "bad_loss_config",
       "loss_fn_config has 'beta', cross_entropy takes kl_coef, normalization"},
      {"text config", [](Request& r) { r.mutable_loss()->add_text_config()->set_name("loss_id"); },
       "bad_loss_config", "loss_fn_config has 'loss_id'"},
  };
  for (const Row& row : rows) {
    Request request = CrossEntropy();
    row.spoil(request);
    CheckRefusal(ValidateForwardBackward(request, kTrainingLimits), row);
  }
}

TEST_CASE("forward_backward: bad inputs of the other losses are refused", "[validate]") {
  using Request = v1::ForwardBackwardRequest;
  const std::vector<Row> rows = {
      {"no advantages",
       [](Request& r) { r.mutable_data(1)->mutable_loss_fn_inputs()->DeleteSubrange(0, 1); },
       "bad_loss_input", "data[1].loss_fn_inputs.advantages is missing, ppo needs it"},
      {"weights",
       [](Request& r) {
         Input(r, "weights") = Floats({1, 1, 1});
       },
       "bad_loss_input",
       "ppo takes target_tokens, logprobs, advantages, clip_low_threshold, clip_high_threshold, "
       "reference_logprobs"},
      {"2-D targets",
       [](Request& r) {
         Input(r, "target_tokens") = Ints({1, 2, 3}, {3, 1});
       },
       "bad_loss_input", "shape has two dimensions, ppo takes one"},
      {"negative threshold", [](Request& r) { AddConfig(r, "clip_low_threshold", -0.1); },
       "bad_loss_config", "loss_fn_config.clip_low_threshold is -0.1"},
      {"nan threshold", [](Request& r) { AddConfig(r, "clip_high_threshold", kNan); },
       "bad_loss_config", "clip_high_threshold is nan"},
      {"low above high",
       [](Request& r) {
         AddConfig(r, "clip_low_threshold", 2);
         AddConfig(r, "clip_high_threshold", 1);
       },
       "bad_loss_config", "clip_low_threshold is 2, above clip_high_threshold 1"},
      {"twice",
       [](Request& r) {
         AddConfig(r, "clip_low_threshold", 1);
         AddConfig(r, "clip_low_threshold", 1);
       },
       "bad_loss_config", "is given twice"},
      {"other key", [](Request& r) { AddConfig(r, "beta", 1); }, "bad_loss_config",
       "ppo takes clip_low_threshold, clip_high_threshold, dual_clip_threshold, kl_coef, "
       "normalization"},
  };
  for (const Row& row : rows) {
    Request request = Ppo();
    row.spoil(request);
    CheckRefusal(ValidateForwardBackward(request, kTrainingLimits), row);
  }
}

TEST_CASE("forward_backward: broken sparse tensors are refused", "[validate]") {
  const std::string two = Pack<float>({1, 2});
  const auto with = [&](const std::vector<int64_t>& crow, const std::vector<int64_t>& col,
                        const std::vector<int64_t>& shape, const std::string& values) {
    return Csr(v1::DTYPE_FLOAT32, values, crow, col, shape);
  };
  const std::vector<std::pair<v1::Tensor, const char*>> rows = {
      {with({0, 1, 1, 2}, {1, 0}, {3}, two), "needs a shape of two dimensions"},
      {with({0, 1, 2}, {1, 0}, {3, 2}, two), "crow_indices has 24 bytes, expected 4 int64"},
      {with({1, 1, 1, 2}, {1, 0}, {3, 2}, two), "crow_indices run from 1 to 2"},
      {with({0, 1, 1, 3}, {1, 0}, {3, 2}, two), "crow_indices run from 0 to 3"},
      {with({0, 2, 1, 2}, {0, 1}, {3, 2}, two), "crow_indices[2] is 1 after 2"},
      {with({0, 9, 1, 2}, {0, 1}, {3, 2}, two), "crow_indices[1] is 9"},
      {with({0, 1, 1, 2}, {2, 0}, {3, 2}, two), "col_indices[0] is 2, expected 0 to 1"},
      {with({0, 1, 1, 2}, {-1, 0}, {3, 2}, two), "col_indices[0] is -1"},
      {with({0, 2, 2, 2}, {1, 1}, {3, 2}, two), "col_indices[1] is 1, expected 2 to 1"},
      {with({0, 1, 1, 2}, {1, 0}, {3, 2}, "1234"), "4 bytes of values"},
      {with({0, 1, 1, 2}, {1, 0}, {3, int64_t{1} << 31}, two), "stands for more than"},
  };
  for (const auto& [tensor, message] : rows) {
    v1::ForwardBackwardRequest request = CrossEntropy();
    Input(request, "target_tokens") = Ints({1, 2, 3, 4, 5, 6}, {3, 2});
    Input(request, "weights") = tensor;
    CheckRefusal(ValidateForwardBackward(request, kTrainingLimits),
                 {message, nullptr, "bad_sparse", message});
  }
}

}  // namespace
}  // namespace lathe::engine
