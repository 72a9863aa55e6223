#include "services/engine/core/plan.h"

#include <catch2/catch.hpp>
#include <cstdint>
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

TEST_CASE("Plan: cut bytes are refused and never crash", "[core]") {
  for (const Plan& plan : SomePlans()) {
    const std::string bytes = EncodePlan(plan);
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(DecodePlan(std::string_view(bytes).substr(0, size)).has_value());
    }
  }
}

TEST_CASE("Plan: another version's plan is not read", "[core]") {
  std::string bytes = EncodePlan(Plan());
  REQUIRE(DecodePlan(bytes).has_value());
  bytes[0] = 0;
  CHECK_FALSE(DecodePlan(bytes).has_value());
}

}  // namespace
}  // namespace lathe::engine
