#include "services/engine/rpc/checkpoint_files.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validate_names.h"

namespace lathe::engine {

absl::Status CheckFiles(CheckpointDirs& dirs, const CheckpointRow& row) {
  const absl::StatusOr<std::string> manifest = dirs.ReadText(row.dir, "manifest.json");
  if (!manifest.ok() && !absl::IsNotFound(manifest.status())) return manifest.status();
  if (!manifest.ok() && dirs.AreFilesMissing(row)) {
    return WithDetail(
        absl::NotFoundError(absl::StrFormat(
            "the files of checkpoint '%s' are gone: they were deleted on the server, from '%s'",
            row.tinker_path, dirs.AddressOf(row.dir))),
        "checkpoint_missing", "path");
  }
  if (manifest.ok() && Sha256Hex(*manifest) == row.manifest_sha256) return absl::OkStatus();
  return WithDetail(
      absl::FailedPreconditionError(absl::StrFormat(
          "manifest.json of checkpoint '%s' is not the one that was saved", row.tinker_path)),
      "checkpoint_damaged", "path");
}

absl::StatusOr<CheckpointRow> FindCheckpoint(Runtime& runtime, const std::string& tenant_id,
                                             const std::string& path, const std::string& field) {
  RETURN_IF_ERROR(ValidateTinkerPath(path, field));
  ASSIGN_OR_RETURN(std::optional<CheckpointRow> row,
                   runtime.store().FindCheckpoint(tenant_id, path, runtime.NowNanos()));
  if (row) return *std::move(row);
  return WithDetail(absl::NotFoundError(absl::StrFormat("checkpoint '%s' does not exist", path)),
                    "not_found", field);
}

absl::Status RecordRead(AuditLog& audit, const Caller& reader, const Caller& caller,
                        const CheckpointRow& row, const char* use) {
  if (row.tenant_id != reader.tenant_id || caller.tenant_id == reader.tenant_id) {
    return absl::OkStatus();
  }
  return audit.RecordRead(reader, "checkpoint_read", row.tinker_path,
                          {{"reader", caller.tenant_name}, {"use", use}});
}

}  // namespace lathe::engine
