#include "services/engine/rpc/checkpoint_files.h"

#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"

namespace lathe::engine {

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

}  // namespace lathe::engine
