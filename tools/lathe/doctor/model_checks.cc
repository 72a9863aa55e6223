#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/json/json.h"
#include "libs/common/memory/process_memory.h"
#include "tools/lathe/doctor/check.h"
#include "tools/lathe/launch/memory_check.h"
#include "tools/lathe/model_folder.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

// Longest header of a safetensors file that readers of the format accept.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

std::vector<std::string> ModelArguments(const CheckInput& input) {
  return input.List(absl::StrCat(input.WorkerSection(), ".model"));
}

// Returns the models that could be found.
std::vector<ModelFolder> FoundModels(const CheckInput& input) {
  std::vector<ModelFolder> models;
  for (const std::string& argument : ModelArguments(input)) {
    absl::StatusOr<ModelFolder> model = ResolveModel(argument, DefaultHubCache());
    if (model.ok()) models.push_back(*std::move(model));
  }
  return models;
}

std::vector<Finding> CheckFolders(const CheckInput& input) {
  const std::vector<std::string> arguments = ModelArguments(input);
  if (arguments.empty()) {
    return {{.state = CheckState::kSkipped,
             .found = "no model is named; lathe doctor -- --model PATH looks at one"}};
  }
  std::vector<Finding> findings;
  for (const std::string& argument : arguments) {
    const absl::StatusOr<ModelFolder> model = ResolveModel(argument, DefaultHubCache());
    if (model.ok()) {
      findings.push_back(
          {.found = absl::StrCat(model->name, " in ", model->path.string(), ", ",
                                 GibText(static_cast<double>(model->weight_bytes)))});
    } else {
      findings.push_back({.state = CheckState::kError,
                          .found = std::string(model.status().message()),
                          .expected = "a folder with config.json, tokenizer.json and safetensors",
                          .remedy = "download the model, or name its folder with --model"});
    }
  }
  return findings;
}

// Returns the size that the header of a safetensors file promises. Returns InvalidArgument if it
// has no header.
absl::StatusOr<uint64_t> PromisedBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  std::array<char, sizeof(header_bytes)> prefix;
  if (!file.read(prefix.data(), prefix.size())) {
    return absl::InvalidArgumentError("it has no header");
  }
  std::memcpy(&header_bytes, prefix.data(), prefix.size());
  if (header_bytes > kMaxHeaderBytes)
    return absl::InvalidArgumentError("it is no safetensors file");
  std::string header(header_bytes, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(header_bytes))) {
    return absl::InvalidArgumentError("its header is cut off");
  }
  const absl::StatusOr<Json> tensors = ParseJson(header, "its header");
  if (!tensors.ok()) return tensors.status();
  uint64_t end = 0;
  for (const auto& [name, tensor] : tensors->items()) {
    if (name == "__metadata__" || !tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const Json& offsets = tensor["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_unsigned()) {
      return absl::InvalidArgumentError("its header has a tensor without a place");
    }
    end = std::max(end, offsets[1].get<uint64_t>());
  }
  return sizeof(header_bytes) + header_bytes + end;
}

// Returns what is wrong with a file of weights; empty: nothing.
std::string WeightsError(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return absl::StrCat(path.string(), " is missing");
  const absl::StatusOr<uint64_t> promised = PromisedBytes(path);
  if (!promised.ok()) return absl::StrCat(path.string(), ": ", promised.status().message());
  if (size == *promised) return "";
  return absl::StrCat(path.string(), " has ", size, " bytes, its header promises ", *promised);
}

// Returns the files of weights: those that the index names, and all that are there.
std::set<fs::path> WeightFiles(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.insert(entry.path());
  }
  const absl::StatusOr<Json> index = ReadJsonFile(folder / "model.safetensors.index.json");
  if (!index.ok() || !JsonHas(*index, "weight_map") || !(*index)["weight_map"].is_object()) {
    return files;
  }
  for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
    if (file.is_string()) files.insert(folder / file.get<std::string>());
  }
  return files;
}

std::vector<Finding> CheckWeights(const CheckInput& input) {
  std::vector<Finding> findings;
  for (const ModelFolder& model : FoundModels(input)) {
    const std::set<fs::path> files = WeightFiles(model.path);
    const size_t num_before = findings.size();
    for (const fs::path& file : files) {
      std::string error = WeightsError(file);
      if (error.empty()) continue;
      findings.push_back({.state = CheckState::kError,
                          .found = std::move(error),
                          .expected = "complete files",
                          .remedy = "download the model again; the copy was cut off"});
    }
    if (findings.size() == num_before) {
      findings.push_back(
          {.found = absl::StrCat(model.name, ": ", files.size(), " complete files")});
    }
  }
  if (findings.empty()) return {{.state = CheckState::kSkipped, .found = "no model was found"}};
  return findings;
}

std::vector<Finding> CheckTokenizers(const CheckInput& input) {
  std::vector<Finding> findings;
  for (const ModelFolder& model : FoundModels(input)) {
    const absl::StatusOr<Json> tokenizer = ReadJsonFile(model.path / "tokenizer.json");
    if (tokenizer.ok()) {
      findings.push_back({.found = absl::StrCat(model.name, " has a tokenizer")});
    } else {
      findings.push_back({.state = absl::IsNotFound(tokenizer.status()) ? CheckState::kWarning
                                                                        : CheckState::kError,
                          .found = absl::StrCat(model.name, ": ", tokenizer.status().message()),
                          .expected = "tokenizer.json, for stop strings and for clients",
                          .remedy = "copy it from the model's origin into the folder"});
    }
  }
  if (findings.empty()) return {{.state = CheckState::kSkipped, .found = "no model was found"}};
  return findings;
}

std::vector<Finding> CheckMemoryOfModels(const CheckInput& input) {
  const std::vector<ModelFolder> models = FoundModels(input);
  if (models.empty()) return {{.state = CheckState::kSkipped, .found = "no model was found"}};
  if (!input.DataDirPath().empty() && input.IsRunning()) {
    return {{.state = CheckState::kSkipped, .found = "Lathe runs and has its memory"}};
  }
  const std::string section = input.WorkerSection();
  const std::string device = input.Option(section + ".device");
  if (device == "cuda" || (device != "cpu" && NumVisibleDevices(input.root / "dev") > 0)) {
    return {{.state = CheckState::kSkipped, .found = "the weights are on GPUs"}};
  }
  int64_t bytes = 0;
  for (const ModelFolder& model : models) bytes += model.loaded_bytes;
  const int shards = input.Number(section + ".fsdp") * input.Number(section + ".tp");
  bytes = bytes / shards * std::min(shards, input.NumRanks());
  const absl::StatusOr<int64_t> available = AvailableMemoryBytes(input.root);
  if (!available.ok()) {
    return {{.state = CheckState::kSkipped, .found = std::string(available.status().message())}};
  }
  const absl::Status status = CheckMemory(
      {.model = models.front().name, .loaded_bytes = bytes, .available_bytes = *available});
  if (status.ok()) {
    return {{.found = absl::StrCat(GibText(static_cast<double>(bytes)), " of weights, ",
                                   GibText(static_cast<double>(*available)), " available")}};
  }
  // Only `lathe up` refuses to start. Ranks that run have this memory already.
  return {{.state = input.role == Role::kUp ? CheckState::kError : CheckState::kWarning,
           .found = std::string(status.message()),
           .remedy = "use a smaller model, or a machine with more memory"}};
}

}  // namespace

const std::vector<DoctorCheck>& ModelChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "model.folder",
       .why = "a worker serves a base model",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckFolders},
      {.name = "model.weights",
       .why = "downloads are cut off at times",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckWeights},
      {.name = "model.tokenizer",
       .why = "stop strings need it",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckTokenizers},
      {.name = "model.memory",
       .why = "a model that does not fit is not loaded",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckMemoryOfModels},
  };
  return checks;
}

}  // namespace lathe::cli
