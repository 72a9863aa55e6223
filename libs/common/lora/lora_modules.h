// The linear layers that LoRA may adapt, with the names that PEFT, protos and checkpoints use.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// The families of the Tinker API: train_attn, train_mlp, train_unembed.
enum class LoraFamily { kAttention, kMlp, kUnembedding };

struct LoraModule {
  const char* name;
  LoraFamily family;
};

// All modules, in the order that adapters and lists of names use.
inline constexpr std::array kLoraModules = {
    LoraModule{"q_proj", LoraFamily::kAttention}, LoraModule{"k_proj", LoraFamily::kAttention},
    LoraModule{"v_proj", LoraFamily::kAttention}, LoraModule{"o_proj", LoraFamily::kAttention},
    LoraModule{"gate_proj", LoraFamily::kMlp},    LoraModule{"up_proj", LoraFamily::kMlp},
    LoraModule{"down_proj", LoraFamily::kMlp},    LoraModule{"lm_head", LoraFamily::kUnembedding},
};

inline bool ContainsModule(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the names of the modules for which `keep(module)` is true, in order.
template <typename Keep>
std::vector<std::string> LoraModulesWhere(const Keep& keep) {
  std::vector<std::string> names;
  for (const LoraModule& module : kLoraModules) {
    if (keep(module)) names.emplace_back(module.name);
  }
  return names;
}

inline std::vector<std::string> AllLoraModules() {
  return LoraModulesWhere([](const LoraModule&) { return true; });
}

inline std::vector<std::string> LoraModulesOf(bool attention, bool mlp, bool unembedding) {
  return LoraModulesWhere([=](const LoraModule& module) {
    if (module.family == LoraFamily::kAttention) return attention;
    return module.family == LoraFamily::kMlp ? mlp : unembedding;
  });
}

}  // namespace lathe
