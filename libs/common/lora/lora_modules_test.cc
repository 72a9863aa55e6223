#include "libs/common/lora/lora_modules.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("LoRA modules: families name their linears in order", "[lora]") {
  CHECK(LoraModulesOf(true, false, false) == Names{"q_proj", "k_proj", "v_proj", "o_proj"});
  CHECK(LoraModulesOf(false, true, true) == Names{"gate_proj", "up_proj", "down_proj", "lm_head"});
  CHECK(LoraModulesOf(true, true, true) == AllLoraModules());
  CHECK(LoraModulesOf(false, false, false).empty());
}

TEST_CASE("LoRA modules: a set of names comes back in order", "[lora]") {
  const Names given = {"lm_head", "v_proj", "q_proj"};
  const Names sorted = LoraModulesWhere(
      [&](const LoraModule& module) { return ContainsModule(given, module.name); });
  CHECK(sorted == Names{"q_proj", "v_proj", "lm_head"});
}

}  // namespace
}  // namespace lathe
