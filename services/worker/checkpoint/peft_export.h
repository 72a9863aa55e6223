// An adapter in PEFT's format: tensor names and adapter_config.json.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/lora/adapter_layout.h"

namespace lathe::worker {

inline constexpr char kPeftWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kPeftConfigFile[] = "adapter_config.json";

// Returns a name like "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". `peft`
// attaches the pair of "base_model.model.lm_head" to the head, whether or not it is tied to the
// embedding.
inline std::string PeftName(const AdapterMatrix& matrix) {
  return "base_model.model." + matrix.name() + ".weight";
}

// Returns the text of adapter_config.json.
inline std::string PeftConfigJson(const LoraSpec& lora, const std::vector<AdapterMatrix>& layout,
                                  const std::string& base_model) {
  std::set<std::string> targets;  // last component of a module's name, which peft matches
  for (const AdapterMatrix& matrix : layout) {
    targets.insert(matrix.linear_name.substr(matrix.linear_name.rfind('.') + 1));
  }
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", base_model},
                                         {"r", lora.rank},
                                         {"lora_alpha", lora.alpha},
                                         {"lora_dropout", 0.0},
                                         {"target_modules", targets},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", false},
                                         {"inference_mode", true},
                                         {"init_lora_weights", true},
                                         {"modules_to_save", nullptr},
                                         {"use_rslora", false}};
  return config.dump(2) + "\n";
}

}  // namespace lathe::worker
