// Options of every loss beyond the contract, and per-token bounds of the ratio.
#include "services/engine/rpc/validate_loss.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "libs/common/errors.h"
#include "services/engine/rpc/testing/train_requests.h"
#include "services/engine/rpc/validate_training.h"

namespace lathe::engine {
namespace {

using TrainRequest = v1::ForwardBackwardRequest;

constexpr ModelLimits kLossLimits{.max_context_length = 8, .vocab_size = 100};

TrainRequest OfLoss(const std::string& name) {
  if (name == "cross_entropy") return CrossEntropy();
  if (name == "gspo") return Gspo();
  if (name == "stable_reinforce") return StableReinforce();
  TrainRequest request = Ppo();
  request.mutable_loss()->set_name(name);
  return request;
}

// Adds the input to every datum.
void AddInput(TrainRequest& request, const std::string& name, const v1::Tensor& tensor) {
  for (v1::Datum& datum : *request.mutable_data()) {
    v1::NamedTensor* input = datum.add_loss_fn_inputs();
    input->set_name(name);
    *input->mutable_tensor() = tensor;
  }
}

TEST_CASE("loss: every one takes a reference and a normalization", "[validate]") {
  const LossRule& rule = GENERATE(from_range(LossRules()));
  const std::string normalization = GENERATE("none", "tokens", "datums");
  TrainRequest request = OfLoss(rule.name);
  AddConfig(request, "kl_coef", 0.1);
  AddText(request, "normalization", normalization);
  AddInput(request, "reference_logprobs", Floats({-1, -2, 0}));
  const absl::Status status = ValidateForwardBackward(request, kLossLimits);
  INFO(rule.name << ": " << status);
  CHECK(status.ok());
}

TEST_CASE("loss: bounds by token replace those of the configuration", "[validate]") {
  for (const char* name : {"ppo", "cispo", "gspo"}) {
    TrainRequest request = OfLoss(name);
    AddConfig(request, "clip_high_threshold", 0.3);
    AddInput(request, "clip_low_threshold", Floats({0.5, 0, 1}));
    AddInput(request, "clip_high_threshold", Floats({0.5, 2, 1.5}));
    CHECK(ValidateForwardBackward(request, kLossLimits).ok());
  }
  TrainRequest dual = Ppo();
  AddConfig(dual, "dual_clip_threshold", 3);
  CHECK(ValidateForwardBackward(dual, kLossLimits).ok());
}

struct LossRow {
  const char* loss;
  std::function<void(TrainRequest&)> spoil;
  const char* code;
  const char* message;  // part of it
};

TEST_CASE("loss: every knob out of range is refused by datum and field", "[validate]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr char kConfig[] = "bad_loss_config";
  constexpr char kInput[] = "bad_loss_input";
  const std::vector<LossRow> rows = {
      {"ppo", [](TrainRequest& r) { AddConfig(r, "kl_coef", -0.1); }, kConfig,
       "loss_fn_config.kl_coef is -0.1, expected a finite number of at least 0"},
      {"ppo", [](TrainRequest& r) { AddConfig(r, "kl_coef", kInfinity); }, kConfig,
       "loss_fn_config.kl_coef is inf"},
      {"ppo", [](TrainRequest& r) { AddText(r, "kl_coef", "much"); }, kConfig,
       "loss_fn_config.kl_coef is 'much', expected a number"},
      {"ppo", [](TrainRequest& r) { AddConfig(r, "dual_clip_threshold", 1); }, kConfig,
       "loss_fn_config.dual_clip_threshold is 1, expected a finite number above 1"},
      {"ppo", [](TrainRequest& r) { AddConfig(r, "dual_clip_threshold", NAN); }, kConfig,
       "loss_fn_config.dual_clip_threshold is nan"},
      {"cispo", [](TrainRequest& r) { AddConfig(r, "dual_clip_threshold", 3); }, kConfig,
       "loss_fn_config has 'dual_clip_threshold', cispo takes clip_low_threshold, "
       "clip_high_threshold, kl_coef, normalization"},
      {"dro", [](TrainRequest& r) { AddText(r, "normalization", "mean"); }, kConfig,
       "loss_fn_config.normalization is 'mean', expected none, tokens or datums"},
      {"dro", [](TrainRequest& r) { AddConfig(r, "normalization", 1); }, kConfig,
       "loss_fn_config.normalization is '1', expected none, tokens or datums"},
      {"dro",
       [](TrainRequest& r) {
         AddText(r, "normalization", "tokens");
         AddText(r, "normalization", "datums");
       },
       kConfig, "loss_fn_config.normalization is given twice"},
      {"ppo", [](TrainRequest& r) { AddConfig(r, "kl_coef", 0.1); }, kInput,
       "data[0].loss_fn_inputs.reference_logprobs is missing, kl_coef needs it"},
      {"ppo",
       [](TrainRequest& r) {
         Input(r, "reference_logprobs") = Floats({-1, -1, -1});
       },
       kInput, "data[1].loss_fn_inputs.reference_logprobs is given, loss_fn_config.kl_coef is not"},
      {"ppo",
       [](TrainRequest& r) {
         AddConfig(r, "kl_coef", 0.1);
         AddInput(r, "reference_logprobs", Floats({-1, -1}));
       },
       kInput, "data[0].loss_fn_inputs.reference_logprobs: length is 2, target_tokens has 3"},
      {"ppo",
       [](TrainRequest& r) {
         AddConfig(r, "kl_coef", 0.1);
         AddInput(r, "reference_logprobs", Floats({-1, NAN, -1}));
       },
       "non_finite_input", "reference_logprobs: value at position 1 is nan"},
      {"cross_entropy",
       [](TrainRequest& r) {
         AddConfig(r, "kl_coef", 0.1);
         AddInput(r, "reference_logprobs", Floats({-1, -1, -1}));
         Input(r, "target_tokens") = Ints({1, 2, 3, 4, 5, 6}, {3, 2});
         Input(r, "weights") = Floats({1, 1, 1, 1, 1, 1}, {3, 2});
       },
       kInput,
       "data[1].loss_fn_inputs.reference_logprobs: shape is (3, 1), target_tokens has (3, 2)"},
      {"ppo",
       [](TrainRequest& r) {
         Input(r, "clip_low_threshold") = Floats({0, -0.5, 0});
       },
       kInput,
       "data[1].loss_fn_inputs.clip_low_threshold: value at position 1 is -0.5, expected at least "
       "0"},
      {"ppo",
       [](TrainRequest& r) {
         AddInput(r, "clip_low_threshold", Floats({0, 0.5, 2}));
         AddInput(r, "clip_high_threshold", Floats({1, 1, 1}));
       },
       kInput,
       "data[0].loss_fn_inputs.clip_low_threshold: at position 2 clip_low_threshold is 2, above "
       "clip_high_threshold 1"},
      {"cispo",
       [](TrainRequest& r) {
         AddConfig(r, "clip_low_threshold", 0.5);
         AddInput(r, "clip_high_threshold", Floats({1, 0.25, 1}));
       },
       kInput,
       "data[0].loss_fn_inputs.clip_high_threshold: at position 1 clip_low_threshold is 0.5, above "
       "clip_high_threshold 0.25"},
      {"dro",
       [](TrainRequest& r) {
         AddInput(r, "clip_low_threshold", Floats({0, 0, 0}));
       },
       kInput,
       "clip_low_threshold: dro takes target_tokens, logprobs, advantages, reference_logprobs"},
  };
  for (const LossRow& row : rows) {
    TrainRequest request = OfLoss(row.loss);
    row.spoil(request);
    const absl::Status status = ValidateForwardBackward(request, kLossLimits);
    INFO(row.message);
    INFO(status);
    CHECK(ErrorCode(status) == row.code);
    CHECK_THAT(std::string(status.message()), Catch::Contains(row.message));
  }
}

}  // namespace
}  // namespace lathe::engine
