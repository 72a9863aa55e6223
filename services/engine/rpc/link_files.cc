#include "services/engine/rpc/link_files.h"

#include <fstream>
#include <string>
#include <system_error>

#include "libs/common/errors.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"

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

}  // namespace lathe::engine
