#include "services/worker/checkpoint/peft_export.h"

#include <set>

#include <nlohmann/json.hpp>

namespace lathe::worker {

std::string PeftName(const AdapterMatrix& matrix) {
  return "base_model.model." + matrix.name() + ".weight";
}

std::string PeftConfigJson(const LoraSpec& lora, const std::vector<AdapterMatrix>& layout,
                           const std::string& base_model) {
  std::set<std::string> targets;  // last component of a module's name, which peft matches
  for (const AdapterMatrix& matrix : layout) {
    targets.insert(matrix.module.substr(matrix.module.rfind('.') + 1));
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
