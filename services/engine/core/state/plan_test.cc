#include "services/engine/core/state/plan.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {
namespace {

// One plan of each kind, with values at their limits.
std::vector<Plan> SomePlans() {
  OptimStepArgs step;
  step.adam_params = std::string("\0\xff", 2);
  SaveArgs save;
  save.sampling_session_seq_id = -1;
  save.ttl_seconds = INT64_MAX;
  save.user_metadata = {{"k", "v"}, {"", ""}};
  save.age_recipients = {"age1", ""};
  LoadArgs load;
  load.path = "tinker://m:train:0/weights/a";
  load.lora_alpha = 0;
  load.target_modules = {"q_proj"};
  CreateModelArgs create;
  create.lora.seed = UINT64_MAX;
  create.user_metadata = {{"k", std::string("\0v", 2)}};
  std::vector<Plan> plans;
  const OperationArgs all_args[] = {
      create, TrainArgs{}, step, save, load, SampleArgs{.seed = UINT64_MAX}, UnloadArgs{}};
  for (const OperationArgs& args : all_args) {
    plans.push_back({.args = args, .seed = UINT64_MAX, .max_tokens = 7, .model_id = "m"});
  }
  plans.back().refused = true;
  plans.back().dir = "d";
  plans.back().version_id = "m@3";
  plans.back().sampling_session_id = "s";
  return plans;
}

TEST_CASE("Plan: every kind comes back as it was", "[core]") {
  for (const Plan& plan : SomePlans()) {
    const std::string bytes = EncodePlan(plan);
    const auto copy = DecodePlan(bytes);
    REQUIRE(copy.has_value());
    CHECK(copy->args.index() == plan.args.index());
    CHECK(EncodePlan(*copy) == bytes);
  }
}

TEST_CASE("Plan: values at their limits come back", "[core]") {
  const auto plans = SomePlans();
  const auto step = std::get<OptimStepArgs>(DecodePlan(EncodePlan(plans[2]))->args);
  CHECK(step.adam_params == std::string("\0\xff", 2));
  const auto save = std::get<SaveArgs>(DecodePlan(EncodePlan(plans[3]))->args);
  CHECK(save.sampling_session_seq_id == -1);
  CHECK(save.ttl_seconds == INT64_MAX);
}

TEST_CASE("Plan: cut bytes never crash", "[core]") {
  for (const Plan& plan : SomePlans()) {
    const std::string bytes = EncodePlan(plan);
    CHECK_FALSE(DecodePlan(std::string_view(bytes).substr(0, 1)).has_value());
    for (size_t size = 0; size < bytes.size(); ++size) {
      (void)DecodePlan(std::string_view(bytes).substr(0, size));
    }
  }
}

// Written by version 0.1.0: "adam_params: '\x09' model_id: 'm'".
TEST_CASE("Plan: the bytes of version 0.1.0 are read", "[core]") {
  const auto plan = DecodePlan("\x1a\x01\x09\x5a\x01m");
  REQUIRE(plan.has_value());
  CHECK(std::get<OptimStepArgs>(plan->args).adam_params == "\x09");
  CHECK(plan->model_id == "m");
  CHECK(EncodePlan(*plan) == "\x1a\x01\x09\x5a\x01m");
}

TEST_CASE("Plan: a field of a later engine is passed over", "[core]") {
  const std::string bytes = EncodePlan(SomePlans()[3]);
  const auto plan = DecodePlan(bytes + "\xa2\x06\x01x");
  REQUIRE(plan.has_value());
  CHECK(EncodePlan(*plan) == bytes);
}

TEST_CASE("Plan: an operation that only a later engine knows is not read", "[core]") {
  CHECK_FALSE(DecodePlan("\xa2\x06\x01x").has_value());
  CHECK_FALSE(DecodePlan("").has_value());
}

TEST_CASE("Plan: the form before messages is recognized", "[core]") {
  for (const Plan& plan : SomePlans()) CHECK_FALSE(IsPlanBeforeProto(EncodePlan(plan)));
  CHECK_FALSE(IsPlanBeforeProto(""));
  CHECK(IsPlanBeforeProto("\x03\x01"));
  CHECK_FALSE(DecodePlan("\x03\x01").has_value());
}

}  // namespace
}  // namespace lathe::engine
