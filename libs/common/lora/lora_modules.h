// Modules: the linears of a base model that LoRA may adapt, by the names that PEFT, protos and
// checkpoints use. One name stands for a linear in each layer.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// The families of the Tinker API: train_attn, train_mlp, train_unembed. The store keeps the
// numbers.
enum class LoraFamily { kAttention = 0, kMlp = 1, kUnembedding = 2 };

struct LoraModule {
  std::string name;
  LoraFamily family = LoraFamily::kAttention;

  bool operator==(const LoraModule&) const = default;
};

// The modules of a dense decoder, in the order of adapters.
inline const std::vector<LoraModule>& DenseLoraModules() {
  static const std::vector<LoraModule> modules = {
      {"q_proj", LoraFamily::kAttention}, {"k_proj", LoraFamily::kAttention},
      {"v_proj", LoraFamily::kAttention}, {"o_proj", LoraFamily::kAttention},
      {"gate_proj", LoraFamily::kMlp},    {"up_proj", LoraFamily::kMlp},
      {"down_proj", LoraFamily::kMlp},    {"lm_head", LoraFamily::kUnembedding}};
  return modules;
}

inline bool ContainsModule(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the names of those `modules` for which `keep(module)` is true, in order.
template <typename Keep>
std::vector<std::string> LoraModulesWhere(const std::vector<LoraModule>& modules,
                                          const Keep& keep) {
  std::vector<std::string> names;
  for (const LoraModule& module : modules) {
    if (keep(module)) names.push_back(module.name);
  }
  return names;
}

inline std::vector<std::string> LoraModuleNames(const std::vector<LoraModule>& modules) {
  return LoraModulesWhere(modules, [](const LoraModule&) { return true; });
}

// Returns the names of a dense decoder's modules in these families.
inline std::vector<std::string> LoraModulesOf(bool attention, bool mlp, bool unembedding) {
  return LoraModulesWhere(DenseLoraModules(), [=](const LoraModule& module) {
    if (module.family == LoraFamily::kAttention) return attention;
    return module.family == LoraFamily::kMlp ? mlp : unembedding;
  });
}

}  // namespace lathe
