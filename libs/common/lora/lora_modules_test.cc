#include "libs/common/lora/lora_modules.h"

#include <catch2/catch.hpp>

namespace lathe {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("LoRA modules: families of a dense decoder name their linears in order", "[lora]") {
  CHECK(LoraModulesOf(true, false, false) == Names{"q_proj", "k_proj", "v_proj", "o_proj"});
  CHECK(LoraModulesOf(false, true, true) == Names{"gate_proj", "up_proj", "down_proj", "lm_head"});
  CHECK(LoraModulesOf(true, true, true) == LoraModuleNames(DenseLoraModules()));
  CHECK(LoraModulesOf(false, false, false).empty());
}

TEST_CASE("LoRA modules: a set of names comes back in order", "[lora]") {
  const std::vector<LoraModule> modules = {{"v_proj", LoraFamily::kAttention},
                                           {"router", LoraFamily::kMlp},
                                           {"q_proj", LoraFamily::kAttention}};
  const Names given = {"q_proj", "v_proj"};
  const Names sorted = LoraModulesWhere(
      modules, [&](const LoraModule& module) { return ContainsModule(given, module.name); });
  CHECK(sorted == Names{"v_proj", "q_proj"});
}

}  // namespace
}  // namespace lathe
