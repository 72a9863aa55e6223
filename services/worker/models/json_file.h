// Reads the JSON files of a model folder.
#pragma once

#include <filesystem>
#include <fstream>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace lathe::worker {

// Reads a JSON object. NotFound if the file is missing; InvalidArgument, with the position, if it
// is not a JSON object.
inline absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), " is missing"));
  // Limits the nesting, because copying and printing a value recurse.
  constexpr int kMaxDepth = 64;
  bool is_too_deep = false;
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    is_too_deep = is_too_deep || depth > kMaxDepth;
    return !is_too_deep;
  };
  try {
    nlohmann::json value = nlohmann::json::parse(file, check_depth);
    if (is_too_deep) {
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), ": nested deeper than ", kMaxDepth));
    }
    if (value.is_object()) return value;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", error.what()));
  }
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON object"));
}

}  // namespace lathe::worker
