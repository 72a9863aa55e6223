#include "services/worker/rpc/train_conversion.h"

#include <catch2/catch.hpp>

#include "services/worker/rpc/tensor_conversion.h"

namespace lathe::worker {
namespace {

void AddFloats(lathe::v1::Datum* datum, const std::string& name, std::vector<float> values) {
  lathe::v1::NamedTensor* input = datum->add_loss_fn_inputs();
  input->set_name(name);
  input->mutable_tensor()->set_dtype(lathe::v1::DTYPE_FLOAT32);
  input->mutable_tensor()->set_dense(WritePacked(values));
}

void AddTargets(lathe::v1::Datum* datum, std::vector<int64_t> shape, std::vector<int64_t> values) {
  lathe::v1::NamedTensor* input = datum->add_loss_fn_inputs();
  input->set_name("target_tokens");
  input->mutable_tensor()->set_dtype(lathe::v1::DTYPE_INT64);
  for (const int64_t size : shape) input->mutable_tensor()->add_shape(size);
  input->mutable_tensor()->set_dense(WritePacked(values));
}

// One datum of three tokens in two chunks, without loss inputs.
lathe::v1::TrainItem MakeItem(const std::string& loss) {
  lathe::v1::TrainItem item;
  item.set_request_id("r1");
  item.mutable_request()->set_model_id("m");
  item.mutable_request()->set_seq_id(4);
  item.mutable_request()->mutable_loss()->set_name(loss);
  lathe::v1::Datum* datum = item.mutable_request()->add_data();
  datum->add_model_input()->set_tokens(WritePacked(std::vector<int32_t>{1, 2}));
  datum->add_model_input()->set_tokens(WritePacked(std::vector<int32_t>{3}));
  return item;
}

TEST_CASE("chunks of a datum are laid end to end and missing weights are ones", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("cross_entropy");
  AddTargets(item.mutable_request()->mutable_data(0), {3}, {2, 3, 4});
  const auto request = ToTrainRequest(item);
  REQUIRE(request.ok());
  CHECK(request->request_id == "r1");
  CHECK(request->model_id == "m");
  CHECK(request->seq_id == 4);
  REQUIRE(request->data.size() == 1);
  CHECK(request->data[0].tokens == std::vector<int32_t>{1, 2, 3});
  CHECK(request->data[0].weights == std::vector<float>{1, 1, 1});
  CHECK(request->data[0].num_targets == 1);
  CHECK_FALSE(request->data[0].targets_2d);
}

TEST_CASE("two-dimensional targets keep their K, also when it is 1", "[rpc]") {
  const int64_t k = GENERATE(1, 2);
  lathe::v1::TrainItem item = MakeItem("cross_entropy");
  lathe::v1::Datum* datum = item.mutable_request()->mutable_data(0);
  AddTargets(datum, {3, k}, std::vector<int64_t>(3 * k, 7));
  AddFloats(datum, "weights", std::vector<float>(3 * k, 0.5f));
  const auto request = ToTrainRequest(item);
  REQUIRE(request.ok());
  CHECK(request->data[0].num_targets == k);
  CHECK(request->data[0].targets_2d);
  CHECK(request->data[0].weights.size() == static_cast<size_t>(3 * k));
}

TEST_CASE("policy losses take logprobs, advantages and per-token clip bounds", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("ppo");
  lathe::v1::Datum* datum = item.mutable_request()->mutable_data(0);
  AddTargets(datum, {3}, {2, 3, 4});
  AddFloats(datum, "logprobs", {-1, -2, -3});
  AddFloats(datum, "advantages", {0, 1, 2});
  AddFloats(datum, "clip_low_threshold", {0.5f, 0.6f, 0.7f});
  const auto request = ToTrainRequest(item);
  REQUIRE(request.ok());
  CHECK(request->data[0].logprobs == std::vector<float>{-1, -2, -3});
  CHECK(request->data[0].advantages == std::vector<float>{0, 1, 2});
  CHECK(request->data[0].clip_low == std::vector<float>{0.5f, 0.6f, 0.7f});
  CHECK(request->data[0].clip_high.empty());
}

TEST_CASE("gspo reads its mask, stable_reinforce makes it from spans", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("gspo");
  lathe::v1::Datum* datum = item.mutable_request()->mutable_data(0);
  AddTargets(datum, {3}, {2, 3, 4});
  AddFloats(datum, "logprobs", {-1, -2, -3});
  AddFloats(datum, "advantages", {0, 1, 2});
  CHECK(ToTrainRequest(item).status().message() == "datum 0: sequence_ratio_mask is missing");
  AddFloats(datum, "sequence_ratio_mask", {0, 1, 1});
  CHECK(ToTrainRequest(item)->data[0].mask == std::vector<float>{0, 1, 1});

  item.mutable_request()->mutable_loss()->set_name("stable_reinforce");
  CHECK(ToTrainRequest(item).status().message() ==
        "datum 0: loss_fn_input_spans: spans cover 0 of 3 tokens");
  for (const bool sampled : {true, false}) {
    lathe::v1::ProvenanceSpan* span = datum->add_loss_fn_input_spans();
    span->set_sampled(sampled);
    span->set_length(sampled ? 2 : 1);
  }
  CHECK(ToTrainRequest(item)->data[0].mask == std::vector<float>{1, 1, 0});
  datum->mutable_loss_fn_input_spans(1)->set_length(2);
  CHECK_FALSE(ToTrainRequest(item).ok());
}

TEST_CASE("losses have the documented defaults", "[rpc]") {
  lathe::v1::LossSpec loss;
  loss.set_name("ppo");
  CHECK(ToLossSpec(loss)->clip_low == 0.8);
  CHECK(ToLossSpec(loss)->clip_high == 1.2);
  loss.set_name("cispo");
  CHECK(ToLossSpec(loss)->clip_low == 0.0);
  CHECK(ToLossSpec(loss)->clip_high == 4.0);
  loss.set_name("dro");
  CHECK(ToLossSpec(loss)->numbers[0] == 0.05);
  loss.set_name("gspo");
  CHECK(ToLossSpec(loss)->clip_low == Approx(0.9997));
  CHECK(ToLossSpec(loss)->clip_high == Approx(1.0004));
  loss.set_name("stable_reinforce");
  CHECK(ToLossSpec(loss)->numbers[0] == 0);
}

TEST_CASE("a loss's configuration replaces its defaults, unknown keys are refused", "[rpc]") {
  lathe::v1::LossSpec loss;
  loss.set_name("cispo");
  lathe::v1::NamedNumber* entry = loss.add_config();
  entry->set_name("clip_high_threshold");
  entry->set_value(2.5);
  CHECK(ToLossSpec(loss)->clip_high == 2.5);
  CHECK(ToLossSpec(loss)->clip_low == 0.0);
  entry->set_name("beta");
  CHECK_FALSE(ToLossSpec(loss).ok());
}

TEST_CASE("kl_coef asks for reference_logprobs, one per target", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("cross_entropy");
  lathe::v1::NamedNumber* entry = item.mutable_request()->mutable_loss()->add_config();
  entry->set_name("kl_coef");
  entry->set_value(0.1);
  lathe::v1::Datum* datum = item.mutable_request()->mutable_data(0);
  AddTargets(datum, {3}, {2, 3, 4});
  CHECK(ToTrainRequest(item).status().message() == "datum 0: reference_logprobs is missing");
  AddFloats(datum, "reference_logprobs", {-1, -2, -3});
  const auto request = ToTrainRequest(item);
  REQUIRE(request.ok());
  CHECK(request->loss.kl_coef == 0.1);
  CHECK(request->data[0].reference_logprobs == std::vector<float>{-1, -2, -3});
}

TEST_CASE("normalization scales the datums by the tokens that take part", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("importance_sampling");
  lathe::v1::NamedString* entry = item.mutable_request()->mutable_loss()->add_text_config();
  entry->set_name("normalization");
  entry->set_value("datums");
  lathe::v1::Datum* datum = item.mutable_request()->mutable_data(0);
  AddTargets(datum, {3}, {2, 3, 4});
  AddFloats(datum, "logprobs", {0, -2, -3});
  AddFloats(datum, "advantages", {0, 1, 2});
  REQUIRE(ToTrainRequest(item).ok());
  CHECK(ToTrainRequest(item)->data[0].loss_scale == 0.5);
  entry->set_value("mean");
  CHECK(ToTrainRequest(item).status().message() ==
        "normalization is 'mean', allowed are none, tokens, datums");
}

TEST_CASE("dual_clip_threshold is ppo's alone", "[rpc]") {
  lathe::v1::LossSpec loss;
  lathe::v1::NamedNumber* entry = loss.add_config();
  entry->set_name("dual_clip_threshold");
  entry->set_value(3);
  loss.set_name("ppo");
  CHECK(ToLossSpec(loss)->numbers[0] == 3);
  loss.set_name("cispo");
  CHECK_FALSE(ToLossSpec(loss).ok());
}

TEST_CASE("an error of parsing names the datum and the field", "[rpc]") {
  lathe::v1::TrainItem item = MakeItem("importance_sampling");
  AddTargets(item.mutable_request()->mutable_data(0), {3}, {2, 3, 4});
  CHECK(ToTrainRequest(item).status().message() == "datum 0: logprobs is missing");
  AddFloats(item.mutable_request()->mutable_data(0), "logprobs", {1, 2});
  CHECK(ToTrainRequest(item).status().message() == "datum 0: logprobs: length is 2, want 3");
}

}  // namespace
}  // namespace lathe::worker
