// From --model to a folder that a worker can load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::cli {

struct ModelFolder {
  // What clients call it: [A-Za-z0-9._-]+, with at most one '/' in it.
  std::string name;
  // Absolute.
  std::filesystem::path path;
  // Sum of the sizes of its safetensors files.
  int64_t weight_bytes = 0;
  // The same once a worker has widened them to fp32: twice that for a bf16 or fp16 model.
  int64_t loaded_bytes = 0;
};

// `argument` is [NAME=]PATH. NAME defaults to the folder's name. A PATH that is no folder is looked
// up as a model id in `hub_cache`, a Hugging Face cache (its `refs/main`, else its newest
// snapshot), and is then the default NAME. Errors: bad_model_name, model_missing, not_a_model.
absl::StatusOr<ModelFolder> ResolveModel(const std::string& argument,
                                         const std::filesystem::path& hub_cache);

// $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub.
std::filesystem::path DefaultHubCache();

}  // namespace lathe::cli
