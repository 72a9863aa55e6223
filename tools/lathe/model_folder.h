// Resolves --model to folders that workers can load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::cli {

struct ModelFolder {
  // Name that clients use: [A-Za-z0-9._-]+, with at most one '/' in it.
  std::string name;
  // Absolute path of the folder.
  std::filesystem::path path;
  // Sum of the sizes of its safetensors files.
  int64_t weight_bytes = 0;
  // Size of the weights as a worker on a CPU holds them. Matrices of an fp16 model become fp32, so
  // it takes twice `weight_bytes`; those of a bf16 or fp32 model stay as they are.
  int64_t loaded_bytes = 0;
};

// `argument` is [NAME=]PATH. NAME defaults to the folder's name. If PATH is not a folder, it is a
// model id, which is looked up in `hub_cache`, a Hugging Face cache (`refs/main`, else the newest
// snapshot); NAME then defaults to the id. Errors: bad_model_name, model_missing, not_a_model.
absl::StatusOr<ModelFolder> ResolveModel(const std::string& argument,
                                         const std::filesystem::path& hub_cache);

// Resolves each of `arguments`. Errors besides those of ResolveModel: bad_model_name for two models
// of one name, or two names of one folder.
absl::StatusOr<std::vector<ModelFolder>> ResolveModels(const std::vector<std::string>& arguments,
                                                       const std::filesystem::path& hub_cache);

// Returns $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub.
std::filesystem::path DefaultHubCache();

}  // namespace lathe::cli
