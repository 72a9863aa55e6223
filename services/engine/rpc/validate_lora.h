// The shape of a LoRA adapter: what the request says, what its metadata says, what the server adds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/engine/rpc/model_limits.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Of models whose request does not say.
struct LoraDefaults {
  // Scales B·A by alpha / rank; finite, above 0.
  double alpha = 32.0;
  // What the families train_attn, train_mlp and train_unembed stand for; known names, in order.
  std::vector<std::string> target_modules = AllLoraModules();
};

// Keys of user_metadata, for clients whose create_model has no field for them.
inline constexpr char kLoraAlphaKey[] = "lathe_lora_alpha";
inline constexpr char kTargetModulesKey[] = "lathe_target_modules";  // names with commas between

struct LoraMetadata {
  std::optional<double> alpha;
  std::vector<std::string> target_modules;  // empty: not said
};

// Error: bad_lora naming key and value.
absl::StatusOr<LoraMetadata> ReadLoraMetadata(const Metadata& metadata);

// From options; errors name the option.
absl::StatusOr<LoraDefaults> MakeLoraDefaults(double alpha,
                                              const std::vector<std::string>& target_modules);

// Errors, all bad_lora: a rank outside 1 to the base model's bound, an alpha that is not a finite
// number above 0, an unknown or repeated module, a module whose family is false, alpha or modules
// given by field and metadata both, nothing to train.
absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const Metadata& metadata,
                                        const LoraDefaults& defaults, const ModelLimits& limits);

}  // namespace lathe::engine
