#include "services/engine/backup/backup_manifest.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/files/new_file.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr char kFile[] = "backup.json";
constexpr char kFieldsSha256[] = "fields_sha256";

absl::StatusOr<BackupFile> ReadFile(const Json& json) {
  BackupFile file;
  ASSIGN_OR_RETURN(file.path, JsonString(json, "path"));
  ASSIGN_OR_RETURN(file.size_bytes, JsonInt(json, "size_bytes"));
  ASSIGN_OR_RETURN(file.sha256, JsonString(json, "sha256"));
  // A path decides where restore writes.
  if (absl::StartsWith(file.path, "/") || absl::StrContains(file.path, "..")) {
    return absl::InvalidArgumentError(absl::StrCat("path is ", file.path));
  }
  return file;
}

absl::StatusOr<BackupManifest> Parse(const Json& json) {
  BackupManifest manifest;
  ASSIGN_OR_RETURN(manifest.lathe_version, JsonString(json, "lathe_version"));
  ASSIGN_OR_RETURN(manifest.created_at, JsonString(json, "created_at"));
  ASSIGN_OR_RETURN(manifest.store, JsonString(json, "store"));
  ASSIGN_OR_RETURN(manifest.schema_version, JsonInt(json, "schema_version"));
  for (const Json& file : json.value("files", Json::array())) {
    ASSIGN_OR_RETURN(manifest.files.emplace_back(), ReadFile(file));
  }
  manifest.damaged = json.value("damaged", std::vector<std::string>());
  return manifest;
}

// Digest of all fields but its own. Their order is that of their names.
std::string DigestOf(Json json) {
  json.erase(kFieldsSha256);
  return Sha256Hex(ToJsonText(json));
}

}  // namespace

std::vector<BackupFile> FilesOfCheckpoint(const std::filesystem::path& manifest) {
  std::vector<BackupFile> files;
  const absl::StatusOr<Json> json = ReadJsonFile(manifest);
  if (!json.ok() || !json->is_object()) return files;
  for (const Json& listed : json->value("files", Json::array())) {
    const absl::StatusOr<std::string> name = JsonString(listed, "name");
    const absl::StatusOr<int64_t> size_bytes = JsonInt(listed, "size_bytes");
    const absl::StatusOr<std::string> sha256 = JsonString(listed, "sha256");
    if (name.ok() && size_bytes.ok() && sha256.ok()) files.push_back({*name, *size_bytes, *sha256});
  }
  return files;
}

absl::Status WriteBackupManifest(const std::filesystem::path& dir, const BackupManifest& manifest) {
  Json files = Json::array();
  for (const BackupFile& file : manifest.files) {
    files.push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  Json json = {{"format_version", kFormatVersion},
               {"lathe_version", manifest.lathe_version},
               {"created_at", manifest.created_at},
               {"store", manifest.store},
               {"schema_version", manifest.schema_version},
               {"files", std::move(files)},
               {"damaged", manifest.damaged}};
  json[kFieldsSha256] = DigestOf(json);
  NewFile file(dir / kFile);
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Write(ToJsonText(json) + "\n"));
  return file.Sync();
}

absl::StatusOr<BackupManifest> ReadBackupManifest(const std::filesystem::path& dir) {
  const absl::StatusOr<Json> json = ReadJsonFile(dir / kFile);
  if (absl::IsNotFound(json.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir.string(), " is no complete backup: it has no ", kFile));
  }
  const std::string path = (dir / kFile).string();
  if (!json.ok() || !json->is_object()) {
    return absl::DataLossError(absl::StrCat(path, " is damaged"));
  }
  ASSIGN_OR_RETURN(const int64_t format_version, JsonInt(*json, "format_version"));
  if (format_version != kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has format_version ", format_version,
                                                      ", this release reads ", kFormatVersion));
  }
  ASSIGN_OR_RETURN(const std::string digest, JsonString(*json, kFieldsSha256));
  if (digest != DigestOf(*json)) return absl::DataLossError(absl::StrCat(path, " was changed"));
  absl::StatusOr<BackupManifest> manifest = Parse(*json);
  if (manifest.ok()) return manifest;
  return absl::DataLossError(absl::StrCat(path, ": ", manifest.status().message()));
}

}  // namespace lathe::engine
