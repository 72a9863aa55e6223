#include "tools/lathe/program.h"

#include <unistd.h>

#include <algorithm>

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

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& overrides) {
  std::vector<std::string> environment = overrides;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool is_overridden =
        std::any_of(overrides.begin(), overrides.end(),
                    [&](const std::string& other) { return other.rfind(name, 0) == 0; });
    if (!is_overridden) environment.push_back(variable);
  }
  return environment;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace lathe::cli
