#include "tools/lathe/commands/find_checkpoint.h"

#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/json/json.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "manifest.json";

absl::Status Missing(const std::string& message) {
  return WithDetail(absl::NotFoundError(message), "checkpoint_missing", "checkpoint");
}

// Returns the tinker:// path of the checkpoint in `dir`. The manifest of a copy names the source's
// path, so the copy's own path is in a separate file.
std::string TinkerPath(const fs::path& dir, const Json& manifest) {
  std::ifstream copy_name(dir / kCopyNameFile);
  std::string path;
  if (std::getline(copy_name, path)) return path;
  return JsonString(manifest, "tinker_path").value_or("");
}

}  // namespace

absl::StatusOr<fs::path> FindCheckpoint(const std::string& name, const fs::path& checkpoints) {
  std::error_code error;
  if (!absl::StartsWith(name, "tinker://")) {
    if (fs::exists(fs::path(name) / kManifest, error)) return fs::canonical(name);
    return Missing(absl::StrCat("'", name, "' is no checkpoint: no ", kManifest, " in it"));
  }
  fs::path found;
  int64_t newest = -1;  // an older one with this path was overwritten and will be deleted
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const absl::StatusOr<Json> manifest = ReadJsonFile(entry.path() / kManifest);
    if (!manifest.ok()) continue;  // not a checkpoint, or deleted meanwhile
    if (TinkerPath(entry.path(), *manifest) != name) continue;
    const int64_t created_at = JsonInt(*manifest, "created_at_ns").value_or(0);
    if (created_at <= newest) continue;
    newest = created_at;
    found = entry.path();
  }
  if (!found.empty()) return found;
  return Missing(absl::StrCat("there is no checkpoint ", name, " in ", checkpoints.string()));
}

absl::StatusOr<std::string> FindStoredCheckpoint(const std::string& tinker_path,
                                                 CheckpointObjects& checkpoints) {
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs, checkpoints.ListDirs());
  ASSIGN_OR_RETURN(const auto trash, checkpoints.ListTrash());
  std::set<std::string> trashed;
  for (const CheckpointObjects::Trashed& entry : trash) trashed.insert(entry.dir);
  std::string found;
  int64_t newest = -1;
  for (const std::string& dir : dirs) {
    if (trashed.contains(dir)) continue;
    const absl::StatusOr<std::string> text = checkpoints.ReadText(dir, kManifest);
    if (absl::IsNotFound(text.status())) continue;  // not whole, or deleted meanwhile
    RETURN_IF_ERROR(text.status());
    const absl::StatusOr<Json> manifest = ParseJson(*text, kManifest);
    if (!manifest.ok()) continue;
    const absl::StatusOr<std::string> copied_as = checkpoints.ReadText(dir, kCopyNameFile);
    if (!copied_as.ok() && !absl::IsNotFound(copied_as.status())) return copied_as.status();
    const std::string path =
        copied_as.ok() ? *copied_as : JsonString(*manifest, "tinker_path").value_or("");
    const int64_t created_at = JsonInt(*manifest, "created_at_ns").value_or(0);
    if (path != tinker_path || created_at <= newest) continue;
    newest = created_at;
    found = dir;
  }
  if (!found.empty()) return found;
  return Missing(
      absl::StrCat("there is no checkpoint ", tinker_path, " in ", checkpoints.AddressOf("")));
}

}  // namespace lathe::cli
