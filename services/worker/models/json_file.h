// Reads the JSON files of a model folder.
#pragma once

#include <filesystem>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace lathe::worker {

// Reads a JSON object. NotFound if the file is missing; InvalidArgument, with the position, if it
// is not a JSON object.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path);

}  // namespace lathe::worker
