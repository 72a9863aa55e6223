// An adapter in PEFT's format: tensor names and adapter_config.json.
#pragma once

#include <string>
#include <vector>

#include "services/worker/formats/safetensors/safetensors_writer.h"
#include "services/worker/lora/adapter_layout.h"

namespace lathe::worker {

inline constexpr char kPeftWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kPeftConfigFile[] = "adapter_config.json";

// Returns a name like "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". `peft`
// attaches the pair of "base_model.model.lm_head" to the head, whether or not it is tied to the
// embedding.
std::string PeftName(const AdapterMatrix& matrix);

// Returns the text of adapter_config.json.
std::string PeftConfigJson(const LoraSpec& lora, const std::vector<AdapterMatrix>& layout,
                           const std::string& base_model);

}  // namespace lathe::worker
