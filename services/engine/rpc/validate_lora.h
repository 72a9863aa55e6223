// Validation of LoRA shapes from a request, its metadata and the server's defaults.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/engine/rpc/validation.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Defaults for models whose request sets no value.
struct LoraDefaults {
  // alpha / rank scales B·A; finite, above 0.
  double alpha = 32.0;
  // Modules that the families train_attn, train_mlp and train_unembed include, of those that the
  // base model has. Empty: all.
  std::vector<std::string> target_modules;
};

// Value of the option lora.target_modules for all modules of each base model.
inline constexpr char kAllModules[] = "all";

// Keys of user_metadata, for clients whose create_model has no field for them.
inline constexpr char kLoraAlphaKey[] = "lathe_lora_alpha";
inline constexpr char kTargetModulesKey[] = "lathe_target_modules";  // names separated by commas

// Reads the LoRA entries of user_metadata; sets alpha and target_modules only. It does not check
// the names of modules, which depend on the base model. Error: bad_lora, naming key and value.
absl::StatusOr<v1::LoraConfig> ReadLoraMetadata(const Metadata& metadata);

// Builds the defaults from the server's options: kAllModules, or names of dense decoders. Errors
// name the option.
absl::StatusOr<LoraDefaults> MakeLoraDefaults(double alpha,
                                              const std::vector<std::string>& target_modules);

// Determines the shape of an adapter of `base`. Errors, all bad_lora: a rank outside 1 to the base
// model's bound, an alpha that is not finite and above 0, a module that the base model lacks, a
// repeated one or one whose family is false, alpha or modules given by both field and metadata,
// nothing to train.
absl::StatusOr<LoraConfig> ValidateLora(const v1::LoraConfig& proto, const Metadata& metadata,
                                        const LoraDefaults& defaults, const BaseModelRow& base);

}  // namespace lathe::engine
