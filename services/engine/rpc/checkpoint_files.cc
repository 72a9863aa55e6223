#include "services/engine/rpc/checkpoint_files.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validate_names.h"

namespace lathe::engine {

namespace {

namespace fs = std::filesystem;

absl::Status ToStatus(const std::error_code& error) {
  if (!error) return absl::OkStatus();
  if (error == std::errc::no_such_file_or_directory) {
    return WithDetail(absl::NotFoundError("the checkpoint's files are gone"), "checkpoint_missing",
                      "source_path");
  }
  if (error == std::errc::no_space_on_device) {
    return absl::ResourceExhaustedError("the disk is full");
  }
  return absl::InternalError("the checkpoint's files cannot be copied: " + error.message());
}

absl::Status WriteName(const fs::path& file, const std::string& tinker_path) {
  std::ofstream out(file);
  out << tinker_path;
  out.close();
  return out ? absl::OkStatus()
             : absl::InternalError("the copy's name cannot be written to " + file.string());
}

absl::Status LinkInto(const fs::path& from, const fs::path& to, const std::string& tinker_path) {
  std::error_code error;
  fs::create_directory(to, error);
  RETURN_IF_ERROR(ToStatus(error));
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file(error) || it->is_symlink(error)) continue;
    if (it->path().filename() == kCopyNameFile) continue;  // from a source that is a copy
    const fs::path target = to / it->path().filename();
    fs::create_hard_link(it->path(), target, error);
    if (error == std::errc::no_such_file_or_directory) break;
    if (error) fs::copy_file(it->path(), target, error);
    if (error) break;
  }
  RETURN_IF_ERROR(ToStatus(error));
  RETURN_IF_ERROR(WriteName(to / kCopyNameFile, tinker_path));
  RETURN_IF_ERROR(SyncDirectory(to));
  return SyncDirectory(to.parent_path());
}

}  // namespace

absl::Status LinkFiles(const fs::path& from, const fs::path& to, const std::string& tinker_path) {
  const absl::Status status = LinkInto(from, to, tinker_path);
  std::error_code ignored;
  if (!status.ok()) fs::remove_all(to, ignored);
  return status;
}

bool AreFilesMissing(const std::filesystem::path& root, const CheckpointRow& row) {
  std::error_code error;
  return !std::filesystem::exists(root / row.dir, error) && !error;
}

absl::Status CheckFiles(const std::filesystem::path& root, const CheckpointRow& row) {
  const std::filesystem::path dir = root / row.dir;
  if (AreFilesMissing(root, row)) {
    return WithDetail(
        absl::NotFoundError(absl::StrFormat(
            "the files of checkpoint '%s' are gone: they were deleted on the server, from '%s'",
            row.tinker_path, dir.string())),
        "checkpoint_missing", "path");
  }
  std::ifstream file(dir / "manifest.json", std::ios::binary);
  const std::string manifest(std::istreambuf_iterator<char>(file), {});
  if (Sha256Hex(manifest) == row.manifest_sha256) return absl::OkStatus();
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
