#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "libs/common/errors.h"
#include "libs/common/optimizer/adam_params.h"
#include "services/engine/rpc/validate_training.h"

namespace lathe::engine {
namespace {

TEST_CASE("optim_step: the table has every number, in order", "[validate]") {
  const google::protobuf::Descriptor& type = *v1::AdamParams::descriptor();
  REQUIRE(static_cast<size_t>(type.field_count()) == kAdamFields.size());
  for (int i = 0; i < type.field_count(); ++i) CHECK(type.field(i)->name() == kAdamFields[i].name);
}

TEST_CASE("optim_step: values out of range are refused by name", "[validate]") {
  v1::AdamParams good;
  good.set_learning_rate(1e-4);
  good.set_beta1(0.9);
  good.set_beta2(0.95);
  good.set_eps(1e-12);
  CHECK(ValidateAdam(good).ok());
  using Spoil = void (v1::AdamParams::*)(double);
  const std::vector<std::tuple<Spoil, double, const char*>> rows = {
      {&v1::AdamParams::set_learning_rate, -1, "adam_params.learning_rate is -1"},
      {&v1::AdamParams::set_learning_rate, NAN, "adam_params.learning_rate is nan"},
      {&v1::AdamParams::set_beta1, 1, "adam_params.beta1 is 1, expected a number in [0, 1)"},
      {&v1::AdamParams::set_beta2, -0.5, "adam_params.beta2 is -0.5"},
      {&v1::AdamParams::set_eps, 0, "adam_params.eps is 0"},
      {&v1::AdamParams::set_weight_decay, INFINITY, "adam_params.weight_decay is inf"},
      {&v1::AdamParams::set_grad_clip_norm, -1, "adam_params.grad_clip_norm is -1"},
  };
  for (const auto& [spoil, value, message] : rows) {
    v1::AdamParams adam = good;
    (adam.*spoil)(value);
    const absl::Status status = ValidateAdam(adam);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(ErrorCode(status) == "bad_optimizer");
    CHECK_THAT(std::string(status.message()), Catch::Contains(message));
  }
  CHECK(ValidateOptimizerType("adamw").ok());
  CHECK(ValidateOptimizerType("").ok());
  CHECK_THAT(std::string(ValidateOptimizerType("dimuon").message()),
             Catch::Contains("optimizer type is 'dimuon'"));
}

}  // namespace
}  // namespace lathe::engine
