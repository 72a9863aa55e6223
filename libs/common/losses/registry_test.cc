#include "libs/common/losses/registry.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "libs/common/losses/evaluate_loss.h"

namespace lathe {
namespace {

using Names = std::vector<std::string>;

Names KeysOf(const LossRule& rule) {
  Names keys;
  for (const LossOption& option : rule.options) keys.emplace_back(option.key);
  return keys;
}

const LossRule& RuleNamed(const std::string& name) {
  for (const LossRule& rule : LossRules()) {
    if (rule.name == name) return rule;
  }
  FAIL(name);
  std::abort();
}

// A loss that exists only in this test.
constexpr LossOption kFixtureOptions[] = {
    {.key = "temperature", .default_value = 2, .minimum = 0.5, .excludes_minimum = true},
    {.key = "offset"}};

LossValue Fixture(const LossSpec& spec, const LossToken& token) {
  const double slope = -token.advantage / spec.numbers[0];
  return {.loss = slope * token.p + spec.numbers[1], .slope = slope};
}

constexpr LossProgram kFixture = {.name = "fixture",
                                  .options = kFixtureOptions,
                                  .mask = LossMask::kSequenceRatio,
                                  .clip = RatioBounds{.low = 0.5, .high = 2},
                                  .evaluate = Fixture};

}  // namespace

TEST_CASE("RuleOf: a program says all that requests of its loss have to bring", "[losses]") {
  const LossRule rule = RuleOf(kFixture);
  CHECK(rule.name == "fixture");
  CHECK(rule.required_inputs ==
        Names{"target_tokens", "logprobs", "advantages", "sequence_ratio_mask"});
  CHECK(rule.optional_inputs ==
        Names{"clip_low_threshold", "clip_high_threshold", "reference_logprobs"});
  CHECK(KeysOf(rule) ==
        Names{"clip_low_threshold", "clip_high_threshold", "temperature", "offset", "kl_coef"});
  CHECK(rule.options[2].minimum == 0.5);
  CHECK(rule.options[2].excludes_minimum);
  CHECK(rule.needs_ratio_mask);
  CHECK_FALSE(rule.needs_provenance);
  CHECK_FALSE(rule.takes_2d_targets);
}

TEST_CASE("A program is all that a loss needs to be configured and computed", "[losses]") {
  LossSpec spec = DefaultsOf(kFixture);
  CHECK(spec.clip_high == 2);
  *FindNumber(spec, "offset") = 0.25;
  const std::vector<float> advantages = {3, 0};
  const std::vector<float> logprobs = {-1, -1};
  std::vector<float> losses(2), slopes(2);
  EvaluateLoss(spec, {{.num_entries = 2, .advantages = advantages}, logprobs}, 0, 2, losses.data(),
               slopes.data());
  CHECK(losses == std::vector<float>{1.75f, 0});
  CHECK(slopes == std::vector<float>{-1.5f, 0});
}

TEST_CASE("LossRules: one a loss, in the registry's order", "[losses]") {
  REQUIRE(LossRules().size() == AllLosses().size());
  for (size_t i = 0; i < AllLosses().size(); ++i) {
    CHECK(LossRules()[i].name == AllLosses()[i]->name);
  }
}

// The table repeats the contract with clients, independent of the programs.
TEST_CASE("LossRules: each loss takes the inputs and options of the contract", "[losses]") {
  struct Row {
    const char* name;
    Names required;
    Names optional;
    Names keys;
  };
  const Names policy = {"target_tokens", "logprobs", "advantages"};
  const Names clip = {"clip_low_threshold", "clip_high_threshold", "reference_logprobs"};
  const Row row = GENERATE_COPY(
      Row{"cross_entropy", {"target_tokens"}, {"weights", "reference_logprobs"}, {"kl_coef"}},
      Row{"importance_sampling", policy, {"reference_logprobs"}, {"kl_coef"}},
      Row{"ppo",
          policy,
          clip,
          {"clip_low_threshold", "clip_high_threshold", "dual_clip_threshold", "kl_coef"}},
      Row{"cispo", policy, clip, {"clip_low_threshold", "clip_high_threshold", "kl_coef"}},
      Row{"dro", policy, {"reference_logprobs"}, {"beta", "kl_coef"}},
      Row{"gspo",
          {"target_tokens", "logprobs", "advantages", "sequence_ratio_mask"},
          clip,
          {"clip_low_threshold", "clip_high_threshold", "kl_coef"}},
      Row{"stable_reinforce", policy, {"reference_logprobs"}, {"kl_coeff", "kl_coef"}});
  INFO(row.name);
  const LossRule& rule = RuleNamed(row.name);
  CHECK(rule.required_inputs == row.required);
  CHECK(rule.optional_inputs == row.optional);
  CHECK(KeysOf(rule) == row.keys);
  CHECK(rule.takes_2d_targets == (rule.name == "cross_entropy"));
  CHECK(rule.needs_ratio_mask == (rule.name == "gspo"));
  CHECK(rule.needs_provenance == (rule.name == "stable_reinforce"));
}

}  // namespace lathe
