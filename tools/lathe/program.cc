#include "tools/lathe/program.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"

namespace lathe::cli {

std::filesystem::path ProgramDir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

absl::StatusOr<std::string> FindProgram(const std::filesystem::path& dir, const std::string& name) {
  const std::string path = (dir / name).string();
  if (access(path.c_str(), X_OK) == 0) return path;
  return WithDetail(
      absl::NotFoundError(absl::StrCat(name, " is missing beside lathe in ", dir.string())),
      "configuration");
}

}  // namespace lathe::cli
