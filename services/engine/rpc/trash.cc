#include "services/engine/rpc/trash.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/json/json.h"
#include "libs/common/lora/lora_modules.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validate_names.h"

namespace lathe::engine {
namespace {

struct Trashed {
  CheckpointRow row;  // without state of the store
  bool is_copy = false;
};

absl::Status NotACheckpoint(const std::string& why) {
  return WithDetail(absl::FailedPreconditionError(why), "not_a_checkpoint", "dir");
}

// Returns true if a module of that family is adapted.
bool Trains(const std::vector<std::string>& modules, LoraFamily family) {
  const std::vector<std::string> of_family = LoraModulesWhere(
      DenseLoraModules(), [family](const LoraModule& module) { return module.family == family; });
  return std::any_of(of_family.begin(), of_family.end(),
                     [&](const std::string& name) { return ContainsModule(modules, name); });
}

absl::StatusOr<LoraConfig> ToLora(const Json& json) {
  LoraConfig lora;
  ASSIGN_OR_RETURN(lora.rank, JsonInt(json, "rank"));
  ASSIGN_OR_RETURN(lora.alpha, JsonNumber(json, "alpha"));
  lora.seed = json.value("seed", uint64_t{0});
  if (!json.contains("target_modules")) return NotACheckpoint("lora.target_modules is missing");
  lora.target_modules = json.at("target_modules").get<std::vector<std::string>>();
  lora.train_attn = Trains(lora.target_modules, LoraFamily::kAttention);
  lora.train_mlp = Trains(lora.target_modules, LoraFamily::kMlp);
  lora.train_unembed = Trains(lora.target_modules, LoraFamily::kUnembedding);
  return lora;
}

// Fills what the path says: the run, the kind and the name.
absl::Status SetPath(const std::string& path, CheckpointRow& row) {
  RETURN_IF_ERROR(ValidateTinkerPath(path, "tinker_path"));
  const std::vector<std::string> parts = absl::StrSplit(path.substr(sizeof("tinker://") - 1), '/');
  row.tinker_path = path;
  row.model_id = parts[0];
  row.name = parts[2];
  row.kind = CheckpointKind::kTraining;
  if (parts[1] == "sampler_weights") row.kind = CheckpointKind::kSampler;
  if (parts[1] == "external_weights") row.kind = CheckpointKind::kExternal;
  return absl::OkStatus();
}

absl::StatusOr<Trashed> ReadManifest(CheckpointDirs& dirs, const std::string& dir,
                                     const Json& json) {
  if (!json.is_object() || !JsonHas(json, "tinker_path")) {
    return NotACheckpoint("the folder holds a snapshot or an unnamed version");
  }
  Trashed trashed;
  CheckpointRow& row = trashed.row;
  ASSIGN_OR_RETURN(std::string path, JsonString(json, "tinker_path"));
  absl::StatusOr<std::string> copied_as = dirs.ReadTextInTrash(dir, kCopyNameFile);
  // Without an answer, a copy would pass for its source.
  if (!copied_as.ok() && !absl::IsNotFound(copied_as.status())) return copied_as.status();
  trashed.is_copy = copied_as.ok();
  if (trashed.is_copy) path = *std::move(copied_as);
  RETURN_IF_ERROR(SetPath(path, row));
  ASSIGN_OR_RETURN(row.tenant_id, JsonString(json, "tenant_id"));
  ASSIGN_OR_RETURN(row.applied_seq, JsonInt(json, "applied_seq"));
  ASSIGN_OR_RETURN(row.created_at, JsonInt(json, "created_at_ns"));
  ASSIGN_OR_RETURN(row.base_model, JsonString(json.at("base_model"), "name"));
  ASSIGN_OR_RETURN(row.lora, ToLora(json.at("lora")));
  const Json metadata = json.value("user_metadata", Json::object());
  for (const auto& [name, value] : metadata.items()) {
    if (value.is_string()) row.user_metadata.emplace_back(name, value.get<std::string>());
  }
  return trashed;
}

absl::StatusOr<Trashed> Read(CheckpointDirs& dirs, const std::string& dir) {
  const absl::StatusOr<std::string> text = dirs.ReadTextInTrash(dir, "manifest.json");
  if (absl::IsNotFound(text.status())) return NotACheckpoint("the folder has no manifest.json");
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const Json json, ParseJson(*text, dirs.AddressOf(dir) + "/manifest.json"));
  absl::StatusOr<Trashed> trashed;
  try {
    trashed = ReadManifest(dirs, dir, json);
  } catch (const Json::exception& error) {
    return NotACheckpoint(absl::StrFormat("manifest.json: %s", error.what()));
  }
  RETURN_IF_ERROR(trashed.status());
  trashed->row.dir = dir;
  trashed->row.size_bytes = dirs.BytesInTrash(dir);
  trashed->row.manifest_sha256 = Sha256Hex(*text);
  return trashed;
}

// Splits {session_id}:train:{model_seq_id}.
absl::Status SetRun(AdoptCheckpoint& adoption) {
  constexpr char kTrain[] = ":train:";
  const std::string& id = adoption.checkpoint.model_id;
  const size_t at = id.rfind(kTrain);
  const bool is_run = at != std::string::npos && at > 0 &&
                      absl::SimpleAtoi(id.substr(at + sizeof(kTrain) - 1), &adoption.model_seq_id);
  if (!is_run) return NotACheckpoint(absl::StrFormat("'%s' is no training run", id));
  adoption.session_id = id.substr(0, at);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ListTrashResponse> DescribeTrash(Runtime& runtime, const KeyRing& keys) {
  v1::ListTrashResponse response;
  CheckpointDirs& dirs = runtime.checkpoint_dirs();
  ASSIGN_OR_RETURN(const std::vector<std::string> trashed_dirs, dirs.ListTrash());
  for (const std::string& dir : trashed_dirs) {
    v1::TrashedFolder& folder = *response.add_folders();
    folder.set_dir(dir);
    folder.set_size_bytes(dirs.BytesInTrash(dir));
    const absl::StatusOr<Trashed> trashed = Read(dirs, dir);
    if (!trashed.ok()) {
      folder.set_reason(std::string(trashed.status().message()));
      continue;
    }
    folder.set_tinker_path(trashed->row.tinker_path);
    if (!trashed->is_copy) folder.set_tenant(keys.TenantName(trashed->row.tenant_id));
  }
  return response;
}

absl::StatusOr<AdoptCheckpoint> PlanAdoption(Runtime& runtime, const KeyRing& keys,
                                             const v1::AdoptCheckpointRequest& request) {
  CheckpointDirs& dirs = runtime.checkpoint_dirs();
  RETURN_IF_ERROR(dirs.CheckInTrash(request.dir()));
  ASSIGN_OR_RETURN(Trashed trashed, Read(dirs, request.dir()));
  AdoptCheckpoint adoption;
  adoption.checkpoint = std::move(trashed.row);
  CheckpointRow& row = adoption.checkpoint;
  if (!request.tenant().empty()) {
    ASSIGN_OR_RETURN(row.tenant_id, keys.TenantId(request.tenant()));
  } else if (trashed.is_copy) {
    return NotACheckpoint("the folder is a copy, which does not say whose it is; name the tenant");
  } else if (keys.TenantName(row.tenant_id).empty()) {
    return WithDetail(absl::NotFoundError(absl::StrFormat(
                          "tenant %s of the manifest does not exist; name another", row.tenant_id)),
                      "not_found", "tenant");
  }
  RETURN_IF_ERROR(SetRun(adoption));
  ASSIGN_OR_RETURN(const std::optional<ModelRow> run,
                   runtime.store().FindModel(row.tenant_id, row.model_id));
  ASSIGN_OR_RETURN(const std::optional<SessionRow> session,
                   runtime.store().FindSession(row.tenant_id, adoption.session_id));
  adoption.makes_run = !run;
  adoption.makes_session = !session;
  return adoption;
}

}  // namespace lathe::engine
