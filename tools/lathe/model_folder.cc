#include "tools/lathe/model_folder.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

absl::Status NamedError(const char* word, const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), word, "model");
}

bool IsNamePart(std::string_view part) {
  const auto is_allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !part.empty() && part.front() != '.' && part.front() != '-' &&
         std::all_of(part.begin(), part.end(), is_allowed);
}

bool IsModelName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  return parts.size() <= 2 && std::all_of(parts.begin(), parts.end(), IsNamePart);
}

std::string ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool IsDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::optional<fs::path> NewestSnapshot(const fs::path& snapshots) {
  std::optional<fs::path> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(snapshots, error)) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    if (!newest || fs::last_write_time(entry) > fs::last_write_time(*newest)) newest = entry.path();
  }
  return newest;
}

// Layout of the cache: hub/models--ORG--NAME/{refs/main,snapshots/COMMIT/}.
std::optional<fs::path> FindInHubCache(const std::string& id, const fs::path& hub_cache) {
  const fs::path repository =
      hub_cache / absl::StrCat("models--", absl::StrReplaceAll(id, {{"/", "--"}}));
  const std::string commit = ReadLine(repository / "refs" / "main");
  const fs::path main = repository / "snapshots" / commit;
  if (!commit.empty() && IsDirectory(main)) return main;
  return NewestSnapshot(repository / "snapshots");
}

// Splits [NAME=]PATH into NAME (may be empty) and PATH. An existing folder is a PATH even if it
// contains '='.
std::pair<std::string, std::string> SplitArgument(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || IsDirectory(argument)) return {"", argument};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

absl::StatusOr<fs::path> FindFolder(const std::string& path, const fs::path& hub_cache) {
  if (IsDirectory(path)) return fs::canonical(path);
  if (fs::exists(path)) return NamedError("not_a_model", absl::StrCat(path, " is not a folder"));
  if (!IsModelName(path)) {
    return NamedError("model_missing", absl::StrCat("there is no folder ", path));
  }
  const std::optional<fs::path> cached = FindInHubCache(path, hub_cache);
  if (!cached) {
    return NamedError("model_missing",
                      absl::StrCat("there is no folder ", path, ", and no model of that name in ",
                                   hub_cache.string()));
  }
  return fs::canonical(*cached);
}

absl::StatusOr<int64_t> WeightBytes(const fs::path& folder) {
  int64_t bytes = 0;
  bool has_weights = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors" || !entry.is_regular_file()) continue;
    bytes += static_cast<int64_t>(entry.file_size());
    has_weights = true;
  }
  if (has_weights) return bytes;
  return NamedError("not_a_model",
                    absl::StrCat(folder.string(), " is not a model: no .safetensors file in it"));
}

absl::StatusOr<Json> ReadConfig(const fs::path& folder) {
  auto config = ReadJsonFile(folder / "config.json");
  if (absl::IsNotFound(config.status())) {
    return NamedError("not_a_model",
                      absl::StrCat(folder.string(), " is not a model: no config.json in it"));
  }
  if (!config.ok()) return NamedError("not_a_model", std::string(config.status().message()));
  return config;
}

// Reads the dtype from config.json (`dtype`, else `torch_dtype`); fp32 if neither is set.
bool IsFp16(const Json& config) {
  const std::string dtype =
      JsonString(config, "dtype").value_or(JsonString(config, "torch_dtype").value_or("float32"));
  return dtype == "float16";
}

// Clients name a base model, so a name stands for one folder. A folder that is loaded twice would
// take its memory twice.
absl::Status CheckDistinct(const std::vector<ModelFolder>& models, const ModelFolder& model) {
  for (const ModelFolder& other : models) {
    if (other.name == model.name) {
      return NamedError("bad_model_name",
                        absl::StrCat("model has the name '", model.name, "' twice, for ",
                                     other.path.string(), " and ", model.path.string(),
                                     "; expected a name of its own for each base model"));
    }
    if (other.path == model.path) {
      return NamedError("bad_model_name",
                        absl::StrCat("model has two names for ", model.path.string(), ", '",
                                     other.name, "' and '", model.name, "'; expected one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFolder> ResolveModel(const std::string& argument, const fs::path& hub_cache) {
  const auto [name, path] = SplitArgument(argument);
  const bool has_name = path.size() != argument.size();
  if (path.empty()) {
    return NamedError("model_missing", absl::StrCat("model is '", argument,
                                                    "', expected [NAME=]PATH with a model folder "
                                                    "or a model id as PATH"));
  }
  ModelFolder model;
  ASSIGN_OR_RETURN(model.path, FindFolder(path, hub_cache));
  const std::string default_name = IsDirectory(path) ? model.path.filename().string() : path;
  model.name = has_name ? name : default_name;
  if (!IsModelName(model.name)) {
    return NamedError("bad_model_name",
                      absl::StrCat("model name is '", model.name,
                                   "', expected letters, digits, '.', '_', '-' and at most one "
                                   "'/'; name it with --model NAME=PATH"));
  }
  ASSIGN_OR_RETURN(const Json config, ReadConfig(model.path));
  ASSIGN_OR_RETURN(model.weight_bytes, WeightBytes(model.path));
  model.loaded_bytes = model.weight_bytes * (IsFp16(config) ? 2 : 1);
  return model;
}

absl::StatusOr<std::vector<ModelFolder>> ResolveModels(const std::vector<std::string>& arguments,
                                                       const fs::path& hub_cache) {
  std::vector<ModelFolder> models;
  for (const std::string& argument : arguments) {
    ASSIGN_OR_RETURN(ModelFolder model, ResolveModel(argument, hub_cache));
    RETURN_IF_ERROR(CheckDistinct(models, model));
    models.push_back(std::move(model));
  }
  return models;
}

fs::path DefaultHubCache() {
  if (const char* cache = std::getenv("HF_HUB_CACHE")) return cache;
  if (const char* home = std::getenv("HF_HOME")) return fs::path(home) / "hub";
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "" : home) / ".cache" / "huggingface" / "hub";
}

}  // namespace lathe::cli
