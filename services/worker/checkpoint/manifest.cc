#include "services/worker/checkpoint/manifest.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/read_error.h"
#include "services/worker/formats/safetensors/sha256.h"

namespace lathe::worker {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kTraining[] = "training";
constexpr char kSampler[] = "sampler";
constexpr char kExternal[] = "external";
constexpr char kSnapshot[] = "snapshot";

// Checksum of all other fields.
constexpr char kDigestField[] = "fields_sha256";

std::string DigestOf(const Json& json) {
  Sha256 hash;
  hash.Update(json.dump());
  return hash.HexDigest();
}

// Old manifests have no checksum. No snapshot is that old.
absl::Status CheckDigest(const std::filesystem::path& path, Json json) {
  if (!json.contains(kDigestField) && json.at("kind") != kSnapshot) return absl::OkStatus();
  const Json wanted = json.value(kDigestField, Json());
  json.erase(kDigestField);
  if (wanted == DigestOf(json)) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: checksum mismatch", path.string()));
}

const char* KindName(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return kTraining;
    case CheckpointKind::kSampler:
      return kSampler;
    case CheckpointKind::kExternal:
      return kExternal;
    case CheckpointKind::kSnapshot:
      break;
  }
  return kSnapshot;
}

CheckpointKind KindFromName(const std::string& name) {
  if (name == kExternal) return CheckpointKind::kExternal;
  if (name == kSnapshot) return CheckpointKind::kSnapshot;
  return name == kSampler ? CheckpointKind::kSampler : CheckpointKind::kTraining;
}

Json LoraToJson(const LoraSpec& lora) {
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"seed", lora.seed},
          {"target_modules", lora.target_modules}};
}

// The first checkpoints named families of modules only.
std::vector<std::string> TargetModulesFromJson(const Json& json) {
  if (json.contains("target_modules")) return json.at("target_modules");
  return LoraModulesOf(json.at("train_attn"), json.at("train_mlp"), json.at("train_unembed"));
}

LoraSpec LoraFromJson(const Json& json) {
  return {.rank = json.at("rank"),
          .alpha = json.at("alpha"),
          .seed = json.at("seed"),
          .target_modules = TargetModulesFromJson(json)};
}

Json OptimizerToJson(const OptimizerSummary& optimizer) {
  Json json = {{"name", "adamw"}, {"num_steps", optimizer.num_steps}};
  for (const AdamField& field : kAdamFields) {
    json[std::string(field.name)] = optimizer.last_adam.*field.number;
  }
  return json;
}

// A number that this version knows and the writer did not keeps its default.
OptimizerSummary OptimizerFromJson(const Json& json) {
  OptimizerSummary optimizer{.num_steps = json.at("num_steps"), .last_adam = {}};
  for (const AdamField& field : kAdamFields) {
    double& number = optimizer.last_adam.*field.number;
    number = json.value(std::string(field.name), number);
  }
  return optimizer;
}

// Throws Json::exception, whose text names the field.
Manifest FromJson(const Json& json) {
  Manifest manifest;
  manifest.kind = KindFromName(json.at("kind"));
  manifest.model_id = json.at("model_id");
  manifest.base_model = json.at("base_model").at("name");
  manifest.base_content_hash = json.at("base_model").at("content_hash");
  manifest.lora = LoraFromJson(json.at("lora"));
  manifest.applied_seq = json.at("applied_seq");
  if (json.contains("optimizer")) manifest.optimizer = OptimizerFromJson(json.at("optimizer"));
  if (json.contains("window")) manifest.window = json.at("window").get<std::vector<int64_t>>();
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({.name = file.at("name"),
                              .size_bytes = file.at("size_bytes"),
                              .sha256 = file.at("sha256")});
  }
  for (const Json& tensor : json.at("tensors")) {
    manifest.tensors.push_back({.file = tensor.at("file"),
                                .name = tensor.at("name"),
                                .dtype = tensor.at("dtype"),
                                .shape = tensor.at("shape"),
                                .sha256 = tensor.at("sha256")});
  }
  return manifest;
}

}  // namespace

absl::StatusOr<std::string> ManifestToJson(const Manifest& manifest,
                                           const std::string& extra_json) {
  Json json = extra_json.empty() ? Json::object()
                                 : Json::parse(extra_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("manifest_json is not a JSON object");
  json["format_version"] = kManifestFormatVersion;
  json["writer"] = "lathe";
  json["kind"] = KindName(manifest.kind);
  json["model_id"] = manifest.model_id;
  json["base_model"] = {{"name", manifest.base_model},
                        {"content_hash", manifest.base_content_hash}};
  json["lora"] = LoraToJson(manifest.lora);
  json["applied_seq"] = manifest.applied_seq;
  json.erase("optimizer");
  if (manifest.optimizer) json["optimizer"] = OptimizerToJson(*manifest.optimizer);
  json.erase("window");
  if (!manifest.window.empty()) json["window"] = manifest.window;
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  json["tensors"] = Json::array();
  for (const ManifestTensor& tensor : manifest.tensors) {
    json["tensors"].push_back({{"file", tensor.file},
                               {"name", tensor.name},
                               {"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"sha256", tensor.sha256}});
  }
  json.erase(kDigestField);
  json[kDigestField] = DigestOf(json);
  return json.dump(1) + "\n";
}

absl::StatusOr<Manifest> ReadManifest(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kManifestFile;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ReadError(path, "open", errno);
  std::stringstream text;
  text << file.rdbuf();
  if (text.bad()) return ReadError(path, "read", errno);
  try {
    const Json json = Json::parse(text.str());
    const int64_t version = json.at("format_version");
    if (version != kManifestFormatVersion) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: format_version is %d, known is %d", path.string(), version, kManifestFormatVersion));
    }
    RETURN_IF_ERROR(CheckDigest(path, json));
    return FromJson(json);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path.string(), error.what()));
  }
}

}  // namespace lathe::worker
