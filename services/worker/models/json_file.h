// Reads the JSON files of a model folder.
#pragma once

#include <filesystem>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace lathe::worker {

// NotFound when the file is missing; InvalidArgument when it is not a JSON object, with the
// position.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path);

}  // namespace lathe::worker
