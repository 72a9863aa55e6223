#include "services/worker/models/json_file.h"

#include <fstream>

#include <absl/strings/str_cat.h>

namespace lathe::worker {

absl::StatusOr<nlohmann::json> ReadJsonObject(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), " is missing"));
  try {
    nlohmann::json value = nlohmann::json::parse(file);
    if (value.is_object()) return value;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", error.what()));
  }
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON object"));
}

}  // namespace lathe::worker
