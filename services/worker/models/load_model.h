// Opens an HF model folder: the only place that knows which families exist.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "services/worker/models/model.h"

namespace lathe::worker {

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::string content_hash;  // hex SHA-256 over config fields and tensors' names, shapes and bytes
};

// Called from the loading thread with the share done, 0 to 1.
using LoadProgress = std::function<void(double fraction)>;

// Reads `folder` (config.json, safetensors) onto `device`. A missing file is NotFound; a family,
// config value or tensor that is not understood is InvalidArgument naming it.
absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress);

}  // namespace lathe::worker
